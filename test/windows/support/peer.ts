/**
 * Runs inside the namespace.
 *
 *     peer.ts echo                     serves TCP 7001 and UDP 7002 on 127.0.0.1, and says "ready"
 *     peer.ts tcp|udp ADDRESS PORT     sends each line of the input there, and prints what comes back
 *     peer.ts api                      serves the API of a cluster, and prints its URL; see `serveApi`
 */
import { createSocket } from 'node:dgram';
import { createServer, connect } from 'node:net';
import { createInterface } from 'node:readline';
import { endpoint, service, slice } from '../../support/fake-api/objects.ts';
import { FakeApi } from '../../support/fake-api/server.ts';

const [mode, address = '', port = ''] = process.argv.slice(2);

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

function echo(): void {
  const udp = createSocket('udp4');
  udp.on('message', (message, from) => udp.send(message, from.port, from.address));
  udp.bind(7002, '127.0.0.1');
  createServer((socket) => socket.pipe(socket)).listen(7001, '127.0.0.1', () => say('ready'));
}

function overTcp(lines: ReturnType<typeof createInterface>): void {
  const socket = connect(Number(port), address);
  socket.setEncoding('utf8').on('data', (text: string) => process.stdout.write(text));
  socket.on('error', (error) => say(`error ${error.message}`));
  socket.on('close', () => say('closed'));
  lines.on('line', (line) => socket.write(`${line}\n`)).on('close', () => socket.end());
}

function overUdp(lines: ReturnType<typeof createInterface>): void {
  const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
  socket.on('message', (message) => process.stdout.write(message));
  socket.on('error', (error) => say(`error ${error.message}`));
  lines.on('line', (line) => socket.send(`${line}\n`, Number(port), address));
  lines.on('close', () => socket.close());
}

const PORTS = [
  { name: 'http', protocol: 'TCP', port: 7001 },
  { name: 'dns', protocol: 'UDP', port: 7002 },
];

/**
 * An API of Kubernetes with one Service, `demo/web` at 10.96.0.20; a line `more` adds `demo/more` at 10.96.0.21. Both
 * have `echo` as endpoint. Their UDP ports differ, because Wine binds UDP sockets of an address to its whole interface.
 */
async function serveApi(lines: ReturnType<typeof createInterface>): Promise<void> {
  const api = new FakeApi({});
  const add = (name: string, address: string, udpPort: number): void => {
    const [http, dns] = PORTS;
    const ports = [
      { ...http, port: 80, targetPort: 7001 },
      { ...dns, port: udpPort, targetPort: 7002 },
    ];
    const endpoints = [endpoint('127.0.0.1')];
    api.upsert('endpointslices', slice(`demo/${name}-a`, endpoints, { ports: PORTS }));
    api.upsert('services', service(`demo/${name}`, address, { spec: { ports } }));
  };
  await api.start();
  add('web', '10.96.0.20', 53);
  say(api.url);
  lines.on('line', (line) => add(line, '10.96.0.21', 54));
}

const lines = createInterface({ input: process.stdin });
if (mode === 'echo') echo();
else if (mode === 'api') await serveApi(lines);
else if (mode === 'tcp') overTcp(lines);
else overUdp(lines);
