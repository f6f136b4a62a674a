// Without a handler, USR1 makes Node open its debugger to every local user. Set before the imports, which take a
// while.
process.on('SIGUSR1', () => undefined);

const { main } = await import('./program.ts');
const code = await main(process.argv.slice(2));
// Open handles must not keep an ended program alive.
process.exit(code);
