"""3. A message goes out: intent → channel → outcome."""
