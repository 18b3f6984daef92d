from examples.live_todos.app import main

main()
