import t from 'tap';
import { listAddresses } from '../../../src/portal/windows/netsh.ts';
import {
  readConnections,
  readExcludedPorts,
  readIpv4Listing,
  readIpv6Listing,
} from '../../../src/portal/windows/listing.ts';
import { CHINESE, ENGLISH, FakeNetsh, GERMAN } from '../../support/fake-netsh.ts';

const NIC = 'vEthernet (HNS Internal NIC)';

t.test('W1: addresses are found whatever the language of the system', async (t) => {
  for (const tongue of [ENGLISH, GERMAN, CHINESE]) {
    const netsh = new FakeNetsh();
    netsh.tongue = tongue;
    netsh.on(NIC).push({ address: '10.96.0.1', prefix: 32, skipAsSource: true });
    t.same(await listAddresses(netsh.exec, NIC, 4), ['172.16.0.1', '10.96.0.1'], tongue.title);
  }
});

t.test('gateways, masks, metrics and servers are no addresses of the interface', async (t) => {
  const text = [
    '',
    'Configuration for interface "Ethernet"',
    '    DHCP enabled:                         Yes',
    '    IP Address:                           192.0.2.5',
    '    Subnet Prefix:                        192.0.2.0/24 (mask 255.255.255.0)',
    '    Default Gateway:                      192.0.2.1',
    '    Gateway Metric:                       0',
    '    InterfaceMetric:                      25',
    '    DNS servers configured through DHCP:  192.0.2.2',
    '    Register with which suffix:           Primary only',
    '    WINS servers configured through DHCP: None',
    '',
  ].join('\r\n');
  t.same(readIpv4Listing(text), ['192.0.2.5']);
  for (const nothing of ['', '\r\n\r\n', 'Ok.\r\n', 'a: b\r\nc: 10.0.0.0/8\r\n']) {
    t.same(readIpv4Listing(nothing), [], JSON.stringify(nothing));
  }
});

t.test('IPv6 addresses are found in a table and in details, without their zone', async (t) => {
  const table = [
    'Interface 12: vEthernet (HNS Internal NIC)',
    '',
    'Addr Type  DAD State   Valid Life Pref. Life Address',
    '---------  ----------- ---------- ---------- ------------------------',
    'Manual     Preferred     infinite   infinite fd00:0:0:1::',
    'Other      Preferred     infinite   infinite fe80::1c2a:5b2:1d3:7f%12',
  ].join('\r\n');
  t.same(readIpv6Listing(table), ['fd00:0:0:1::', 'fe80::1c2a:5b2:1d3:7f']);
  const details = [
    'Address fd00::1 Parameters',
    '---------------------------------------------------------',
    'Interface Luid     : vEthernet (HNS Internal NIC)',
    'Scope Id           : 0.0',
    'Valid Lifetime     : infinite',
    'Skip as Source     : true',
  ].join('\r\n');
  t.same(readIpv6Listing(details), ['fd00::1']);
});

t.test('ports that Windows reserves are read from their table', async (t) => {
  const text = [
    '',
    'Protocol tcp Port Exclusion Ranges',
    '',
    'Start Port    End Port',
    '----------    --------',
    '      5357        5357',
    '     36010       36109',
    '     50000       50059     *',
    '     70000       70001',
    '       100          99',
    '',
    '* - Administered port exclusions.',
    '',
  ].join('\r\n');
  t.same(readExcludedPorts(text), [
    { first: 5357, last: 5357 },
    { first: 36_010, last: 36_109 },
    { first: 50_000, last: 50_059 },
  ]);
});

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
    '  UDP    10.96.0.4:53           *:*',
  ].join('\r\n');
  t.same([...readConnections(text)], ['10.96.0.1', 'fd00:0:0:1::', 'fe80::1']);
});
