import t from 'tap';
import { formatBytes, parseBytes } from '../../src/util/bytes.ts';
import { formatHostPort, parseHostPort } from '../../src/util/host-port.ts';
import { parsePortRange } from '../../src/util/port-range.ts';

t.test('sizes: plain numbers and binary units', (t) => {
  const cases: [string, number | undefined][] = [
    ['4194304', 4_194_304],
    ['4Mi', 4_194_304],
    ['512Ki', 524_288],
    ['1Gi', 1_073_741_824],
    ['0', 0],
    ['', undefined],
    ['4M', undefined],
    ['4.5Mi', undefined],
    ['-1', undefined],
    ['99999999999999999999', undefined],
    ['9999999999Gi', undefined],
  ];
  for (const [text, bytes] of cases) t.equal(parseBytes(text), bytes, JSON.stringify(text));
  t.equal(formatBytes(4_194_304), '4Mi');
  t.equal(formatBytes(1_048_577), '1048577');
  t.equal(formatBytes(2 ** 40), '1024Gi');
  t.equal(formatBytes(0), '0');
  t.end();
});

t.test('listen addresses: an IP address or none, and a port', (t) => {
  t.same(parseHostPort('127.0.0.1:10249'), { host: '127.0.0.1', port: 10_249 });
  t.same(parseHostPort('[::1]:80'), { host: '::1', port: 80 });
  t.same(parseHostPort(':0'), { host: '', port: 0 });
  t.same(parseHostPort('0.0.0.0:65535'), { host: '0.0.0.0', port: 65_535 });
  const wrong = [
    '',
    '10249',
    '127.0.0.1',
    '127.0.0.1:',
    '127.0.0.1:65536',
    '::1:80',
    '[127.0.0.1]:80',
    '[::1]',
    'localhost:80',
    '1.2.3:80',
    '[]:80',
    '127.0.0.1:80 ',
    '127.0.0.1:-1',
  ];
  for (const text of wrong) t.equal(parseHostPort(text), undefined, JSON.stringify(text));
  for (const text of ['127.0.0.1:80', '[::1]:80', ':80']) {
    const parsed = parseHostPort(text);
    t.equal(parsed && formatHostPort(parsed), text);
  }
  t.end();
});

t.test('port ranges: the three forms of kube-proxy', (t) => {
  t.same(parsePortRange('36000-37000'), { first: 36_000, last: 37_000 });
  t.same(parsePortRange('36000 - 37000'), { first: 36_000, last: 37_000 });
  t.same(parsePortRange('36000+1000'), { first: 36_000, last: 37_000 });
  t.same(parsePortRange('36000'), { first: 36_000, last: 36_000 });
  t.same(parsePortRange('1-65535'), { first: 1, last: 65_535 });
  for (const text of [
    '',
    '0',
    '0-10',
    '37000-36000',
    '1-65536',
    '65535+1',
    'a-b',
    '1-',
    '-1',
    '1-2-3',
  ]) {
    t.equal(parsePortRange(text), undefined, JSON.stringify(text));
  }
  t.end();
});
