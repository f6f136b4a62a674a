import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import {
  bindAddresses,
  hasBridges,
  hostFamilies,
  networksOf,
  nodePortAddresses,
  nodePortNetworks,
  targetsOf,
} from '../../src/portal/node-addresses.ts';
import { NODE } from '../support/rule-rigs.ts';

t.test('networks are masked, and none lies in another', (t) => {
  for (const [given, family, left] of [
    [['192.168.1.1', '10.0.0.0/16', '10.1.2.3/8', 'fd00::/8'], 4, '10.0.0.0/8 192.168.1.1/32'],
    [['10.0.0.0/8', '11.0.0.0/8', '10.1.0.0/16'], 4, '10.0.0.0/8 11.0.0.0/8'],
    [['fd00::1/16', 'fd00:1::/32', '2001:db8::5'], 6, 'fd00::/16 2001:db8::5/128'],
    [['10.0.0.0/33', '10.0.0.0/x', '10.0.0.0/', 'web', '', 'fe80::1%eth0'], 4, ''],
  ] as const) {
    t.equal(networksOf(given, family).join(' '), left);
  }
  t.end();
});

t.test('destinations of packets', (t) => {
  const any = { 4: '0.0.0.0', 6: '::' };
  t.strictSame(targetsOf(any, NODE, undefined), { 4: '192.0.2.5', 6: '2001:db8::5' });
  t.strictSame(
    targetsOf({ 4: '192.0.2.77', 6: '::' }, NODE, undefined),
    { 4: '192.0.2.77', 6: '2001:db8::5' },
    'where the proxy ports listen',
  );
  const more = [{ address: '192.0.2.4', loopback: false }, ...NODE];
  t.equal(targetsOf(any, more, undefined)[4], '192.0.2.4');
  t.equal(targetsOf(any, more, { 4: '192.0.2.5', 6: undefined })[4], '192.0.2.5', 'it stays');
  t.equal(targetsOf(any, NODE, { 4: '192.0.2.4', 6: undefined })[4], '192.0.2.5', 'if it can');
  const linkLocal = [{ address: '169.254.0.1', loopback: false }, ...NODE.slice(0, 2)];
  t.strictSame(targetsOf(any, linkLocal, undefined), { 4: undefined, 6: undefined });
  t.end();
});

t.test('listen addresses of proxy ports', (t) => {
  t.strictSame(bindAddresses('0.0.0.0', [4, 6]), { 4: '0.0.0.0', 6: '::' });
  t.strictSame(bindAddresses('::', [4]), { 4: '0.0.0.0' });
  t.strictSame(bindAddresses('192.0.2.5', [4, 6]), { 4: '192.0.2.5', 6: '::' });
  t.strictSame(bindAddresses('2001:DB8::05', [4, 6]), { 4: '0.0.0.0', 6: '2001:db8::5' });
  for (const wrong of ['127.0.0.1', '::1']) {
    t.throws(() => bindAddresses(wrong, [4, 6]), { code: 'KPNG_USAGE' }, wrong);
  }
  t.strictSame(hostFamilies(NODE), [4, 6]);
  t.strictSame(hostFamilies(NODE.slice(0, 1)), [4]);
  t.end();
});

t.test('addresses of node ports', (t) => {
  const all = { 4: ['0.0.0.0/0'], 6: ['::/0'] };
  t.strictSame(nodePortNetworks([], NODE), all);
  t.strictSame(nodePortNetworks(['all'], []), all);
  t.strictSame(nodePortNetworks(['primary'], NODE), {
    4: ['192.0.2.5/32'],
    6: ['2001:db8::5/128'],
  });
  t.strictSame(nodePortNetworks(['localhost', '10.9.9.9/8'], NODE), {
    4: ['10.0.0.0/8', '127.0.0.1/32'],
    6: ['::1/128'],
  });
  t.throws(() => nodePortNetworks(['eth0'], NODE), RangeError);
  t.end();
});

const [linkLocal, second] = ['fe80::5', '198.51.100.7'].map((address) => ({
  address,
  loopback: false,
}));
const host = [linkLocal!, ...NODE, second!];
const only4 = host.filter(({ address }) => !address.includes(':'));

t.test('words, networks and addresses', async (t) => {
  for (const [wanted, expected] of [
    ['', '0.0.0.0 ::'],
    ['all', '0.0.0.0 ::'],
    ['localhost', '127.0.0.1 ::1'],
    ['primary', '192.0.2.5 2001:db8::5'],
    ['192.0.2.0/24', '192.0.2.5'],
    ['0.0.0.0/0', '127.0.0.1 192.0.2.5 198.51.100.7'],
    ['2001:db8::/32 10.0.0.0/8', '2001:db8::5'],
    ['203.0.113.1 2001:DB8:0::1', '203.0.113.1 2001:db8::1'],
    ['localhost 127.0.0.0/8', '127.0.0.1 ::1'],
    ['0.0.0.0 192.0.2.5 ::1', '0.0.0.0 ::1'],
  ] as const) {
    t.equal(nodePortAddresses(wanted.split(' ').filter(Boolean), host).join(' '), expected);
  }
  t.same(nodePortAddresses([], only4), ['0.0.0.0'], 'a host without IPv6 gets none');
  t.same(nodePortAddresses(['localhost', 'primary'], only4), ['127.0.0.1', '192.0.2.5']);
  t.throws(() => nodePortAddresses(['10.0.0.0/8', 'eth0'], host), { message: /"eth0"/ });
});

t.test('bridges count once br_netfilter is loaded, and where /sys is there', async (t) => {
  const root = t.testdir();
  const make = (folder: string): unknown => mkdirSync(join(root, folder), { recursive: true });
  t.notOk(hasBridges(root));
  make('proc/sys/net/bridge');
  t.notOk(hasBridges(root), 'no /sys');
  make('sys/class/net/eth0');
  t.notOk(hasBridges(root));
  make('sys/class/net/cni0/bridge');
  t.ok(hasBridges(root));
});
