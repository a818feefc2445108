"""Programs that serve m3b to others: chat clients by the Model Context Protocol."""
