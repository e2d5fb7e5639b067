"""How much may be in progress at once: admission, shares, body pace, what the system allows."""
