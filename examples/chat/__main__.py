from examples.chat.app import main

main()
