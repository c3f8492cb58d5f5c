"""The exact sparse kernels that local, atrous and sparse share."""
