"""The nodes and pods of a real cluster; the tests are skipped when the data is not available."""
