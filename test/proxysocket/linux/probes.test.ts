import { constants } from 'node:os';
import t from 'tap';
import {
  PROBES,
  datagramProbe,
  relayProbe,
} from '../../../src/proxysocket/linux/probes/carries.ts';
import {
  addressProbe,
  epollProbe,
  errnoProbe,
  functionsProbe,
  platformProbe,
  transferProbe,
  runProbes,
  type Findings,
  type Probe,
} from '../../../src/proxysocket/linux/probes/basics.ts';
import { DescriptorLedger } from '../../../src/proxysocket/linux/sys/ledger.ts';
import type { FfiModule, Library } from '../../../src/proxysocket/linux/sys/library.ts';
import { library, linuxTest } from '../../support/linux-sys.ts';
import { openDescriptors } from '../../support/sockets.ts';

const nothing = (): Findings => ({ ledger: DescriptorLedger.create(4096) });

type Functions = Library['c'];
type Calls = {
  [name in keyof Functions]?: (real: Functions[name]) => (...args: never[]) => unknown;
};

/** Findings of a library in which some functions do something else. */
function withCalls(calls: Calls): Findings {
  const lib = library();
  const c: Record<string, unknown> = { ...lib.c };
  for (const [name, make] of Object.entries(calls)) {
    c[name] = (make as (real: unknown) => unknown)(c[name]);
  }
  return { ...nothing(), ffi: lib.ffi, lib: { ...lib, c: c as unknown as Functions } };
}

async function failure(
  probe: Probe,
  findings: Findings,
): Promise<{ probe: string; message: string }> {
  try {
    await runProbes([probe], findings);
  } catch (error) {
    return error as { probe: string; message: string };
  }
  return { probe: 'none', message: 'it passed' };
}

linuxTest('on this system all probes pass, in order, and leave nothing open', async (t) => {
  const before = openDescriptors();
  const findings = await runProbes(PROBES, nothing());
  t.same(
    PROBES.map(({ name }) => name),
    ['platform', 'functions', 'errno', 'epoll', 'addresses', 'transfers', 'relay', 'datagrams'],
  );
  t.equal(findings.epollLayout?.stride, process.arch === 'x64' ? 3 : 4);
  t.same(findings.ledger.list(), []);
  t.equal(openDescriptors(), before);
});

t.test('the first failing probe is named, and later ones do not run', async (t) => {
  const tried: string[] = [];
  const probe = (name: string, fails: boolean): Probe => ({
    name,
    async check() {
      tried.push(name);
      if (fails) throw new Error(`${name} is broken`);
    },
  });
  const probes = [probe('a', false), probe('b', true), probe('c', true)];
  await t.rejects(runProbes(probes, nothing()), { probe: 'b', message: 'b is broken' });
  t.same(tried, ['a', 'b']);
});

t.test('platform: other systems, other processors, Node without node:ffi', async (t) => {
  const load = async (): Promise<FfiModule> => ({}) as FfiModule;
  t.match(await failure(platformProbe('darwin', 'x64', load), nothing()), {
    probe: 'platform',
    message: 'the system is darwin, not linux',
  });
  t.match(await failure(platformProbe('linux', 'riscv64', load), nothing()), {
    message: 'the processor is riscv64',
  });
  const missing = async (): Promise<FfiModule> => {
    throw Object.assign(new Error('No such built-in module: node:ffi'), {
      code: 'ERR_UNKNOWN_BUILTIN_MODULE',
    });
  };
  t.match(await failure(platformProbe('linux', 'arm64', missing), nothing()), {
    message: /No such built-in/,
  });
  t.match(await failure(platformProbe('linux', 'arm64', load), nothing()), { probe: 'none' });
});

t.test('functions: one that is missing, or no permission', async (t) => {
  const ffi = {
    dlopen() {
      throw new Error('dlsym failed: recvmmsg');
    },
  } as unknown as FfiModule;
  t.match(await failure(functionsProbe, { ...nothing(), ffi }), {
    probe: 'functions',
    message: /recvmmsg/,
  });
  t.match(await failure(functionsProbe, nothing()), { message: 'node:ffi is missing' });
});

linuxTest('errno: an error number that is wrong, from the beginning or later', async (t) => {
  const lib = library();
  const wrong = { ...lib, errno: new Int32Array([constants.errno.EAGAIN]) };
  t.match(await failure(errnoProbe, { ...nothing(), lib: wrong }), {
    probe: 'errno',
    message: /call 0 of read\(-1\) gave -1 and error number 11/,
  });
  let calls = 0;
  const later = withCalls({
    read: (read) => (fd: number, address: bigint, length: number) => {
      calls += 1;
      return calls > 15_000 ? 0 : read(fd, address, length);
    },
  });
  t.match(await failure(errnoProbe, later), { message: /call 15000 / });
});

linuxTest('epoll: events that make no sense', async (t) => {
  const before = openDescriptors();
  const silent = withCalls({ epoll_wait: () => () => 0 });
  t.match(await failure(epollProbe, silent), { probe: 'epoll', message: /unknown layout/ });
  t.equal(openDescriptors(), before);
  const findings = withCalls({});
  await epollProbe.check(findings);
  t.ok(findings.epollLayout);
});

linuxTest('addresses: a bind that binds nowhere', async (t) => {
  const findings = withCalls({ bind: () => () => 0 });
  t.match(await failure(addressProbe, findings), {
    probe: 'addresses',
    message: 'the bound address is 0.0.0.0, not 127.0.0.1',
  });
});

linuxTest('transfers: a length that is wrong, a byte that has changed', async (t) => {
  const before = openDescriptors();
  let calls = 0;
  const shorter = withCalls({
    write: (write) => (fd: number, address: bigint, length: number) => {
      calls += 1;
      return write(fd, address, calls === 500 ? length - 1 : length);
    },
  });
  t.match(await failure(transferProbe(1000), shorter), {
    probe: 'transfers',
    message: /^transfer 499 of \d+ bytes: \d+ out, \d+ in$/,
  });
  const shifted = withCalls({
    read: (read) => (fd: number, address: bigint, length: number) =>
      read(fd, address + 1n, length - 1),
  });
  t.match(await failure(transferProbe(10), shifted), { probe: 'transfers' });
  t.equal(openDescriptors(), before);
});

linuxTest('relay: a byte that has changed on its way', async (t) => {
  const before = openDescriptors();
  let calls = 0;
  const findings = withCalls({
    read: (read) => (fd: number, address: bigint, length: number) => {
      calls += 1;
      // Into foreign memory, once.
      return read(fd, calls === 2 ? address + 4096n : address, Math.max(0, length - 4096));
    },
  });
  t.match(await failure(relayProbe, findings), { probe: 'relay', message: /changed|did not end/ });
  t.ok(openDescriptors() <= before, 'nothing stays open');
});

linuxTest('datagrams: sizes that get lost', async (t) => {
  const before = openDescriptors();
  const findings = withCalls({
    read: (read) => (fd: number, address: bigint, length: number) =>
      read(fd, address, Math.min(length, 60_000)),
  });
  t.match(await failure(datagramProbe, findings), {
    probe: 'datagrams',
    message: /^what came back is 60000 of 1, /,
  });
  t.ok(openDescriptors() <= before, 'nothing stays open');
});
