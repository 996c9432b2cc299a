"""What a user sees: messages in their language, and tables, pages and progress bars in notebooks."""
