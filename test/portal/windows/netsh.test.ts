import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { PortAllocator } from '../../../src/portal/proxy-ports.ts';
import {
  chooseInterface,
  HNS_INTERFACE,
  windowsLink,
} from '../../../src/portal/windows/addresses.ts';
import { ledgerFor } from '../../../src/portal/windows/ledger.ts';
import { excludedPorts, readConnections } from '../../../src/portal/windows/netsh.ts';
import { captureLog } from '../../support/captured-log.ts';
import { exits, FakeExec } from '../../support/fake-exec.ts';

t.test('connections that carry something count, in any language', async (t) => {
  const text = [
    '',
    'Aktive Verbindungen',
    '',
    '  Proto  Lokale Adresse         Remoteadresse          Status',
    '  TCP    10.96.0.1:80           192.0.2.9:41000        HERGESTELLT',
    '  TCP    10.96.0.2:80           0.0.0.0:0              ABHÖREN',
    '  TCP    10.96.0.3:80           192.0.2.9:41001        TIME_WAIT',
    '  TCP    [fd00:0:0:1::]:80      [2001:db8::9]:41000    HERGESTELLT',
    '  TCP    [fe80::1%12]:80        [fe80::2%12]:41000     ESTABLISHED',
    '  TCP    [fd00::5efe:10.0.0.1]:80 [fd00::2]:41000      ESTABLISHED',
    '  UDP    10.96.0.4:53           *:*',
  ].join('\r\n');
  t.same([...readConnections(text)], ['10.96.0.1', 'fd00:0:0:1::', 'fe80::1', 'fd00::5efe:a00:1']);
});

const RANGE = { first: 36_000, last: 36_009 };
const table = (...rows: readonly string[]) =>
  ['', 'Start Port    End Port', '----------    --------', ...rows, ''].join('\r\n');

t.test('ports that Windows has reserved are never handed out, and reported once', async (t) => {
  const fake = new FakeExec(({ args }) => ({
    stdout:
      args.at(-1) === 'protocol=tcp'
        ? table('  35990  36003', '  80  80', '  70000  70001', '  36005  36004')
        : table('36008 36100 *', '', '* - Administered port exclusions.'),
  }));
  const { log, lines } = await captureLog();
  const reserved = await excludedPorts(fake.exec, RANGE, log);
  t.same(fake.lines, [
    'netsh interface ipv4 show excludedportrange protocol=tcp',
    'netsh interface ipv4 show excludedportrange protocol=udp',
  ]);
  t.match(lines(), [{ level: 'info', ports: ['36000-36003', '36008-36009'] }]);
  const allocator = new PortAllocator(RANGE, Math.random, new Map(), reserved);
  const ports = new Set(Array.from({ length: 5 }, () => allocator.allocate()));
  t.same(ports, new Set([36_004, 36_005, 36_006, 36_007, undefined]));

  const { length } = lines();
  const none = new FakeExec(() => ({ stdout: table('80 80') }));
  t.same(await excludedPorts(none.exec, RANGE, log), []);
  t.equal(lines().length, length, 'nothing is reported where nothing is reserved');
  t.same(await excludedPorts(new FakeExec(() => exits('no')).exec, RANGE, log), []);
  t.match(lines().at(-1), { level: 'warn', msg: /Reading the ports reserved by Windows failed/ });
});

t.test('W1: the flag comes first, then the variable, then what pods suggest', async (t) => {
  const env = { INTERFACE_TO_ADD_SERVICE_IP: 'eth0' };
  const loopback = Object.values(networkInterfaces()).find((list) => list?.[0]?.internal) ?? [];
  const few = { Ethernet: [], 'Loopback Pseudo-Interface 1': loopback };
  const some = { ...few, 'vEthernet (nat)': [] };
  const all = { ...some, [HNS_INTERFACE]: [] };
  for (const [flag, variables, interfaces, name, reason] of [
    ['mine', env, all, 'mine', /--portal-interface/],
    ['', env, all, 'eth0', /INTERFACE_TO_ADD/],
    ['', { INTERFACE_TO_ADD_SERVICE_IP: '' }, all, HNS_INTERFACE, /host network service/],
    ['', {}, some, 'vEthernet (nat)', /no vEther/],
    ['', {}, few, 'Loopback Pseudo-Interface 1', /only programs of the host/],
    ['', {}, {}, 'vEthernet (HNS Internal NIC)', /no interface is up/],
  ] as const) {
    t.match(chooseInterface(flag, variables, interfaces), { name, reason });
  }
});

t.test('each interface has its own ledger in the program data folder', async (t) => {
  t.equal(
    ledgerFor({ ProgramData: 'Data' }, HNS_INTERFACE).path,
    join('Data', 'kpng-userspace', 'addresses on vEthernet (HNS Internal NIC).txt'),
  );
  t.match(ledgerFor({}, 'a').path, /^C:\\ProgramData/);
});

t.test('names that would be misread on a command line are refused', async (t) => {
  const wrong = ['', 'a"b', 'a\\b', '..\\..\\x', 'a/b', 'a:b', 'a\nb', 'a*', 'x'.repeat(257)];
  for (const name of wrong) {
    t.throws(() => windowsLink(name, {}), { code: 'KPNG_USAGE' }, JSON.stringify(name));
  }
  for (const name of [HNS_INTERFACE, 'Anschluß', '以太网', 'a & b'])
    t.equal(windowsLink(name, {}).name, name);
});
