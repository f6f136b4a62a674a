import t from 'tap';
import { formatListen, isExposed, parseListen } from '../../src/server/listen-address.ts';

const tcp = (host: string, port: number, family?: 4 | 6) => ({ kind: 'tcp', host, port, family });

t.test('addresses as kpng writes them, and shorter', async (t) => {
  for (const [text, address] of [
    ['tcp://:12090', tcp('', 12090)],
    ['tcp://127.0.0.1:0', tcp('127.0.0.1', 0)],
    ['tcp4://:1', tcp('', 1, 4)],
    ['tcp6://[::1]:1', tcp('::1', 1, 6)],
    ['10.0.0.1:12090', tcp('10.0.0.1', 12090)],
    [':12090', tcp('', 12090)],
    ['localhost:12090', tcp('127.0.0.1', 12090)],
    ['unix:///run/kpng.sock', { kind: 'unix', path: '/run/kpng.sock' }],
    ['unix:kpng.sock', { kind: 'unix', path: 'kpng.sock' }],
    ['unix://kpng.sock', { kind: 'unix', path: 'kpng.sock' }],
  ] as const)
    t.strictSame(parseListen(text), address, text);
});

t.test('an invalid address is reported with the flag', async (t) => {
  for (const [text, problem] of [
    ['', /expected an address/],
    ['tcp://', /expected an address/],
    ['tcp://host:1', /expected an address/],
    ['tcp://127.0.0.1', /expected an address/],
    ['tcp://127.0.0.1:70000', /expected an address/],
    ['http://127.0.0.1:1', /the scheme "http" is not known/],
    ['unixpacket:///run/x', /the scheme "unixpacket" is not known/],
    ['tcp4://[::1]:1', /not one of IPv4/],
    ['tcp6://127.0.0.1:1', /not one of IPv6/],
    ['unix:', /the path of the socket is missing/],
    ['unix:///run/', /the path of the socket is missing/],
    ['unix:a\0b', /zero byte/],
    [`unix:///${'x'.repeat(108)}`, /at most 107 bytes/],
  ] as const) {
    t.throws(() => parseListen(text), { code: 'KPNG_USAGE', message: problem }, text);
  }
});

t.test('an address is written as it is read', async (t) => {
  for (const text of ['tcp://127.0.0.1:12090', 'tcp://:1', 'tcp6://[::1]:1', 'unix:///run/x']) {
    t.equal(formatListen(parseListen(text)), text);
  }
});

t.test('only loopback and unix sockets are out of reach for others', async (t) => {
  for (const text of ['127.0.0.1:1', '127.5.5.5:1', 'tcp://[::1]:1', 'unix:x']) {
    t.equal(isExposed(parseListen(text)), false, text);
  }
  for (const text of [':1', '0.0.0.0:1', '10.0.0.1:1', 'tcp6://:1', '[fd00::1]:1']) {
    t.equal(isExposed(parseListen(text)), true, text);
  }
});
