/** What a greeter answers to a line that it is sent. Apart, since the greeter's file is a program. */
export const ANSWER = 'served';
