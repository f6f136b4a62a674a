import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import { probeCalls, probeEngine, probeRelay } from '../../../src/proxysocket/linux/engine.ts';
import {
  probePlatform,
  type FfiModule,
  type Library,
} from '../../../src/proxysocket/linux/sys/library.ts';
import { EAGAIN } from '../../../src/proxysocket/linux/sys/abi.ts';
import { Sys } from '../../../src/proxysocket/linux/sys/sys.ts';
import { library, linuxTest, newSys } from '../../support/linux-sys.ts';
import { openDescriptors } from '../../support/sockets.ts';
import { until } from '../../support/until.ts';

/** A function that gets a descriptor, an address and a length. */
type Transfer = (fd: number, at: bigint, length: number) => number;

/** What a function does instead; `call`: how often it was called. */
type Wrong = (real: Transfer, call: number, ...args: Parameters<Transfer>) => number;

/** A library in which one function does something else. */
function withCall(name: 'read' | 'write', wrong: Wrong): Library {
  const lib = library();
  let calls = 0;
  const transfer: Transfer = (...args) => wrong(lib.c[name], (calls += 1), ...args);
  return { ...lib, c: { ...lib.c, [name]: transfer } };
}

linuxTest('on this system all probes pass and leave nothing open', async (t) => {
  const before = openDescriptors();
  const sys = newSys();
  await probeEngine(sys);
  t.same(sys.ledger.list(), []);
  await until(() => openDescriptors() <= before);
});

linuxTest('node:ffi is loaded without a warning', async (t) => {
  const url = import.meta.resolve('../../../src/proxysocket/linux/sys/library.ts');
  const script = `const { importFfi, releaseMemory } = await import('${url}');
    await Promise.all([importFfi(), releaseMemory()]); process.emitWarning('another');`;
  // tap switches them off.
  const args = ['--warnings', '--input-type=module', '-e', script];
  const { stderr } = await promisify(execFile)(process.execPath, args, { env: {} });
  t.match(stderr, /^\(node:\d+\) Warning: another\n/);
  t.notMatch(stderr, /FFI/);
});

t.test('platform: other systems and processors, no node:ffi, a missing function', async (t) => {
  const failing = (message: string) => () => {
    throw new Error(message);
  };
  const none = async () => failing('No such built-in module: node:ffi')();
  const less = async () => ({ dlopen: failing('dlsym failed: recvmmsg') }) as unknown as FfiModule;
  for (const [platform, arch, load, message] of [
    ['darwin', 'x64', less, /^platform: the system is darwin, not linux/],
    ['linux', 'riscv64', less, /the processor is riscv64/],
    ['linux', 'arm64', none, /No such built-in/],
    ['linux', 'arm64', less, /recvmmsg/],
  ] as const)
    await t.rejects(probePlatform(platform, arch, load), { name: 'UnfitError', message });
});

linuxTest('calls: a length, a byte or an error number that is wrong after a while', async (t) => {
  const before = openDescriptors();
  for (const [lib, message] of [
    [
      withCall('write', (write, call, fd, at, length) =>
        write(fd, at, call === 15_000 ? length - 1 : length),
      ),
      /^transfer 14999 of \d+ bytes: \d+ out, \d+ in, then -11$/,
    ],
    [
      withCall('write', (write, _, fd, at, length) => write(fd, length > 1 ? at + 1n : at, length)),
      /changed/,
    ],
    [
      withCall('read', (read, _, ...args) => Math.max(0, read(...args))),
      /^transfer 0 of 1 bytes: 1 out, 1 in, then 0$/,
    ],
  ] as const)
    t.throws(() => probeCalls(lib), message);
  t.equal(openDescriptors(), before);
});

const LARGEST_DATAGRAM = 65_535;

const MISTAKES: readonly (readonly [what: string, wrong: Wrong, message: RegExp])[] = [
  [
    'a byte that has changed on its way',
    // Into foreign memory, once.
    (read, call, fd, at, length) =>
      read(fd, call === 2 ? at + 4096n : at, Math.max(0, length - 4096)),
    /changed|did not end/,
  ],
  [
    'datagrams that get lost',
    (read, _, fd, at, length) => read(fd, at, length === LARGEST_DATAGRAM ? 60_000 : length),
    /^datagrams have changed: 60000 of 1$/,
  ],
];

for (const [what, wrong, message] of MISTAKES) {
  linuxTest(`relay: ${what}`, async (t) => {
    const before = openDescriptors();
    await t.rejects(probeRelay(new Sys(withCall('read', wrong))), { message });
    // Node closes the server and the clients of the probe some turns later.
    await until(() => openDescriptors() <= before);
  });
}

linuxTest('relay: without an answer, the error names firewalls', async (t) => {
  const message = /^TCP connections over 127.0.0.1 did not end within 100 ms .* firewall .* lo$/;
  const deaf = new Sys(withCall('read', () => -EAGAIN));
  await t.rejects(probeRelay(deaf, 100), { message });
});
