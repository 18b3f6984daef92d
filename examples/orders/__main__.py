from examples.orders.app import main

main()
