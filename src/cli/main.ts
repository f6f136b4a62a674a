import { main } from './program.ts';

const code = await main(process.argv.slice(2));
// Whatever still is open must not keep a program that has ended.
process.exit(code);
