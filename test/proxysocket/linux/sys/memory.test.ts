import * as fc from 'fast-check';
import { SocketAddress } from 'node:net';
import { networkInterfaces, constants } from 'node:os';
import { holds } from '../../../support/property.ts';
import { Pinned } from '../../../../src/proxysocket/linux/sys/memory.ts';
import { linuxTest, newSys, library } from '../../../support/linux-sys.ts';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { openLibrary } from '../../../../src/proxysocket/linux/sys/library.ts';
import * as k from '../../../../src/proxysocket/linux/sys/abi.ts';
import t from 'tap';

function roundTrip(address: string, port = 80): string | undefined {
  const view = new DataView(new ArrayBuffer(32));
  k.writeSockaddr(view, 0, { address, port });
  const read = k.readSockaddr(view, 0);
  return read?.port === port ? read.address : undefined;
}

t.test('every address comes back as Node would write it', (t) => {
  const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }));
  const groups = fc.array(group, { minLength: 8, maxLength: 8 });
  const port = fc.integer({ min: 0, max: 0xffff });
  const six = fc.property(groups, port, (groups, port) => {
    const address = groups.map((each) => each.toString(16)).join(':');
    const { address: expected } = new SocketAddress({ address, family: 'ipv6' });
    return roundTrip(address, port) === expected;
  });
  holds(t, six);
  const four = fc.property(fc.ipV4(), (address) => roundTrip(address) === address);
  holds(t, four);
  t.end();
});

t.test('a link-local address keeps its zone', (t) => {
  t.equal(roundTrip('fe80::1'), 'fe80::1');
  t.equal(roundTrip('fe80::1%4000000'), 'fe80::1%4000000', 'no one has that many interfaces');
  for (const [name, addresses = []] of Object.entries(networkInterfaces())) {
    const own = addresses.find((each) => each.family === 'IPv6' && each.scopeid > 0);
    if (own !== undefined) t.equal(roundTrip(`fe80::1%${name}`), `fe80::1%${name}`);
  }
  t.equal(roundTrip('2001:db8::1%1'), '2001:db8::1', 'others need none');
  t.throws(() => roundTrip('fe80::1%no-such-interface'), /no-such-interface/);
  t.equal(k.readSockaddr(new DataView(new ArrayBuffer(32)), 0), undefined, 'of no known family');
  t.end();
});

const CHILD = join(import.meta.dirname, '../ffi-child.ts');

linuxTest('the functions of a thread are resolved once, or V8 would not know them', (t) => {
  const { ffi } = library();
  t.equal(openLibrary(ffi), openLibrary(ffi));
});

linuxTest('V8 inlines the wrapper of each function where it knows the function', (t) => {
  // As a worker of the engine compiles: where the calls are, so it is through before the child is.
  const compilation = ['--no-concurrent-recompilation', '--trace-turbo-inlining'];
  const flags = ['--disable-warning=ExperimentalWarning', ...compilation];
  const trace = execFileSync(process.execPath, [...flags, CHILD], { encoding: 'utf8' });
  for (const name of ['knownRead', 'knownWrite']) {
    // `invoke` is what node:ffi calls its wrappers.
    const copied = `^Inlining .*SharedFunctionInfo invoke>.* into .*SharedFunctionInfo ${name}>`;
    t.match(trace, new RegExp(copied, 'm'), name);
  }
});

linuxTest('a failed call returns its error number', (t) => {
  const sys = newSys();
  const memory = new Pinned(sys.ffi, 8);
  t.equal(sys.read(-1, memory, 8), -k.EBADF);
  t.equal(sys.c.listen(-1, 1), -k.EBADF);
  t.equal(sys.getOption(-1, k.SOL_SOCKET, k.SO_ERROR), -k.EBADF);
  t.equal(sys.localAddress(-1), undefined);
  t.equal(sys.pending(-1, k.SIOCOUTQ), 0);
  const fd = sys.stream(4);
  t.equal(sys.write(fd, memory, 8), -k.EPIPE, 'and no signal ends the process');
  t.equal(sys.remoteAddress(fd), undefined);
  const nowhere = { address: '198.51.100.1', port: 0 };
  t.equal(sys.bind(fd, nowhere), -constants.errno.EADDRNOTAVAIL);
  sys.close(fd);
  t.match(k.systemError(9999, 'read').code, /9999/, 'also when it has no name');
  t.match(k.systemError(k.EAGAIN, 'read'), { code: 'EAGAIN', syscall: 'read', errno: -11 });
});
