"""The core's answers as text for people: tables, trees and bars. No module of this package sends requests."""
