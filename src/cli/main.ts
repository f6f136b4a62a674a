// Node opens its debugger to every local user on USR1 unless there is a handler. Before the imports, which take a while.
process.on('SIGUSR1', () => undefined);

const { main } = await import('./program.ts');
const code = await main(process.argv.slice(2));
// Whatever still is open must not keep a program that has ended.
process.exit(code);
