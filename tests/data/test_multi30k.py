"""Files of Multi30k by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from configs import built, composed
from hydra.errors import InstantiationException


@pytest.mark.parametrize("option", ["test_split", "suffix", "target_language"])
def test_a_name_leads_out_of_no_folder(option: str, tmp_path: Path) -> None:
    config = composed("data=multi30k", f"data.{option}=../../x", f"paths.cache_dir={tmp_path}").data
    with pytest.raises(
        InstantiationException, match=r"\.\./\.\./x would be part of a file's name, which cannot contain"
    ):
        built(config)
