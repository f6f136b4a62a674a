import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import {
  openProbed,
  probeCalls,
  probePlatform,
  probeRelay,
} from '../../../src/proxysocket/linux/probes.ts';
import { DescriptorLedger } from '../../../src/proxysocket/linux/sys/memory.ts';
import type { FfiModule, Library } from '../../../src/proxysocket/linux/sys/library.ts';
import { Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { library, linuxTest } from '../../support/linux-sys.ts';
import { openDescriptors } from '../../support/sockets.ts';
import { until } from '../../support/until.ts';

type Functions = Library['c'];
type Calls = {
  [name in keyof Functions]?: (real: Functions[name]) => (...args: never[]) => unknown;
};

/** A library in which some functions do something else. */
function withCalls(calls: Calls): Library {
  const lib = library();
  const c: Record<string, unknown> = { ...lib.c };
  for (const [name, make] of Object.entries(calls)) {
    c[name] = (make as (real: unknown) => unknown)(c[name]);
  }
  return { ...lib, c: c as unknown as Functions };
}

linuxTest('on this system all probes pass and leave nothing open', async (t) => {
  const before = openDescriptors();
  const { ledger } = await openProbed(DescriptorLedger.create(4096), false);
  t.same(ledger.list(), []);
  await until(() => openDescriptors() <= before);
});

linuxTest('node:ffi is loaded without a warning', async (t) => {
  const url = import.meta.resolve('../../../src/proxysocket/linux/sys/library.ts');
  const script = `const { importFfi, releaseMemory } = await import('${url}');
    await Promise.all([importFfi(), releaseMemory()]); process.emitWarning('another');`;
  const args = ['--input-type=module', '-e', script];
  const { stderr } = await promisify(execFile)(process.execPath, args, { env: {} });
  t.match(stderr, /^\(node:\d+\) Warning: another\n/);
  t.notMatch(stderr, /FFI/);
});

t.test('platform: other systems and processors, no node:ffi, a missing function', async (t) => {
  const load = async (): Promise<FfiModule> => ({}) as FfiModule;
  await t.rejects(probePlatform('darwin', 'x64', load), /the system is darwin, not linux/);
  await t.rejects(probePlatform('linux', 'riscv64', load), /the processor is riscv64/);
  const missing = async (): Promise<FfiModule> => {
    throw new Error('No such built-in module: node:ffi');
  };
  await t.rejects(probePlatform('linux', 'arm64', missing), /No such built-in/);
  const ffi = {
    dlopen() {
      throw new Error('dlsym failed: recvmmsg');
    },
  } as unknown as FfiModule;
  await t.rejects(
    probePlatform('linux', 'arm64', async () => ffi),
    /recvmmsg/,
  );
});

linuxTest('calls: a length, a byte or an error number that is wrong after a while', async (t) => {
  const before = openDescriptors();
  let calls = 0;
  const shorter = withCalls({
    write: (write) => (fd: number, address: bigint, length: number) => {
      calls += 1;
      return write(fd, address, calls === 15_000 ? length - 1 : length);
    },
  });
  t.throws(() => probeCalls(shorter), /^transfer 14999 of \d+ bytes: \d+ out, \d+ in, then -11$/);
  const shifted = withCalls({
    write: (write) => (fd: number, address: bigint, length: number) =>
      write(fd, length > 1 ? address + 1n : address, length),
  });
  t.throws(() => probeCalls(shifted), /changed/);
  const silent = withCalls({
    read: (read) => (fd: number, address: bigint, length: number) =>
      Math.max(0, read(fd, address, length)),
  });
  t.throws(() => probeCalls(silent), /^transfer 0 of 1 bytes: 1 out, 1 in, then 0$/);
  t.equal(openDescriptors(), before);
});

const LARGEST_DATAGRAM = 65_535;

for (const [what, read, message] of [
  [
    'a byte that has changed on its way',
    // Into foreign memory, once.
    (call: number, address: bigint, length: number) => [
      call === 2 ? address + 4096n : address,
      Math.max(0, length - 4096),
    ],
    /changed|did not end/,
  ],
  [
    'datagrams that get lost',
    (_call: number, address: bigint, length: number) => [
      address,
      length === LARGEST_DATAGRAM ? 60_000 : length,
    ],
    /^datagrams have changed: 60000 of 1$/,
  ],
] as const) {
  linuxTest(`relay: ${what}`, async (t) => {
    const before = openDescriptors();
    let calls = 0;
    const lib = withCalls({
      read: (real) => (fd: number, address: bigint, length: number) => {
        calls += 1;
        return real(fd, ...(read(calls, address, length) as [bigint, number]));
      },
    });
    await t.rejects(probeRelay(new Sys(lib)), { message });
    // Node closes the server and the clients of the probe some turns later.
    await until(() => openDescriptors() <= before);
  });
}
