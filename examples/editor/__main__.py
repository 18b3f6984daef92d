from examples.editor.app import main

main()
