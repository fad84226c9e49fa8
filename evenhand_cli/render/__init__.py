"""Pictures of the core's answers for people: tables, trees and bars. They ask nothing themselves."""
