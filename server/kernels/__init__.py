"""Arrays in, arrays out: int64, no words of the domain, each beside its plain-Python meaning in the tests."""
