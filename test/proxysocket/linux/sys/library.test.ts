import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { openLibrary } from '../../../../src/proxysocket/linux/sys/library.ts';
import { library, linuxTest } from '../../../support/linux-sys.ts';

const CHILD = join(import.meta.dirname, '../../../support/known-calls-child.ts');

linuxTest('the functions of a thread are resolved once, or V8 would not know them', (t) => {
  const { ffi } = library();
  t.equal(openLibrary(ffi), openLibrary(ffi));
});

linuxTest('V8 copies the wrapper of each function to where it knows which one it is', (t) => {
  // As a worker of the engine compiles: where the calls are, so it is through before the child is.
  const compilation = ['--no-concurrent-recompilation', '--trace-turbo-inlining'];
  const flags = ['--disable-warning=ExperimentalWarning', ...compilation];
  const trace = execFileSync(process.execPath, [...flags, CHILD], { encoding: 'utf8' });
  for (const name of ['knownRead', 'knownWrite']) {
    // `invoke` is what node:ffi calls its wrappers.
    const copied = new RegExp(
      `^Inlining .*SharedFunctionInfo invoke>.* into .*SharedFunctionInfo ${name}>`,
      'm',
    );
    t.match(trace, copied, name);
  }
});
