"""The core's answers as text for users: tables, trees and bars. No module of this package sends requests."""
