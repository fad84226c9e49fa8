"""The core's answers as text for people: tables, trees and bars. Modules here send no requests."""
