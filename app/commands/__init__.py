"""Commands: to serve, to operate an installation, to write definitions; demo and doctor."""
