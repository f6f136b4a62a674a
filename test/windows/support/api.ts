/**
 * Runs inside the namespace: an API of Kubernetes with one Service, `demo/web` at 10.96.0.20. Says its
 * URL; a line `more` on its input adds `demo/more` at 10.96.0.21. Both have the echo of peer.ts as endpoint. Their UDP
 * ports differ, because Wine cannot have the same one on two addresses (see differences.ts).
 */
import { createInterface } from 'node:readline';
import { endpoint, service, slice } from '../../support/fake-api/objects.ts';
import { FakeApi } from '../../support/fake-api/server.ts';

const PORTS = [
  { name: 'http', protocol: 'TCP', port: 7001 },
  { name: 'dns', protocol: 'UDP', port: 7002 },
];

const api = new FakeApi({});

function add(name: string, address: string, udpPort: number): void {
  const [http, dns] = PORTS;
  const ports = [
    { ...http, port: 80, targetPort: 7001 },
    { ...dns, port: udpPort, targetPort: 7002 },
  ];
  api.upsert('endpointslices', slice(`demo/${name}-a`, [endpoint('127.0.0.1')], { ports: PORTS }));
  api.upsert('services', service(`demo/${name}`, address, { spec: { ports } }));
}

await api.start();
add('web', '10.96.0.20', 53);
process.stdout.write(`${api.url}\n`);
createInterface({ input: process.stdin }).on('line', (line) => add(line, '10.96.0.21', 54));
