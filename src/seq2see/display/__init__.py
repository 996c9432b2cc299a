"""Output for users: messages in their language, and tables, pages and progress bars in notebooks."""
