/**
 * A specialised proxier in one file: clients go to endpoints by their address, and an endpoint that
 * comes or goes moves no more of them than it has to (rendezvous hashing). kube-proxy has nothing like it.
 *
 * It listens on the cluster IPs of TCP services, which the host has to have.
 *
 *     kpng kube --service-proxy-name=by-client to-api &
 *     node examples/custom-proxier/main.ts
 *
 * In a project of your own, import from 'kpng-userspace'.
 */
import { createHash } from 'node:crypto';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { Protocol, resolvePort, run, type ServiceItem } from '../../src/index.ts';

interface Target {
  readonly host: string;
  readonly port: number;
}

/** What the listeners look at: endpoints by `ip:port` of the service. */
let targets = new Map<string, readonly Target[]>();
const servers = new Map<string, Server>();

await run((items) => {
  targets = new Map();
  for (const item of items) for (const [door, found] of doorsOf(item)) targets.set(door, found);
  for (const [door, server] of servers) {
    if (targets.has(door)) continue;
    server.close();
    servers.delete(door);
  }
  for (const door of targets.keys()) if (!servers.has(door)) open(door);
});
for (const server of servers.values()) server.close();

/** Where a service is to be reached, each with its endpoints. */
function* doorsOf({ service, endpoints }: ServiceItem): Generator<[string, Target[]]> {
  const names = new Set(service.ports.map(({ name }) => name));
  for (const port of service.ports.filter(({ protocol }) => protocol === Protocol.TCP)) {
    const found = endpoints.flatMap((endpoint): Target[] => {
      const [host] = endpoint.ips?.v4 ?? [];
      const number = resolvePort(port, endpoint, names);
      return host === undefined || number === undefined ? [] : [{ host, port: number }];
    });
    for (const ip of service.ips?.clusterIPs?.v4 ?? []) yield [`${ip}:${port.port}`, found];
  }
}

function open(door: string): void {
  const [host = '', port = ''] = door.split(':');
  const server = createServer({ allowHalfOpen: true }, (client) => carry(door, client));
  server.on('error', (error) => {
    process.stderr.write(`${door}: ${error.message}\n`);
    servers.delete(door); // The next change tries again.
  });
  server.listen(Number(port), host, () => process.stdout.write(`listening on ${door}\n`));
  servers.set(door, server);
}

function carry(door: string, client: Socket): void {
  const target = choose(client.remoteAddress ?? '', targets.get(door) ?? []);
  if (target === undefined) {
    client.resetAndDestroy();
    return;
  }
  const endpoint = connect({ ...target, allowHalfOpen: true });
  client.pipe(endpoint).pipe(client);
  const fail = (error: Error): void => {
    process.stderr.write(`${door}: ${error.message}\n`);
    client.destroy();
    endpoint.destroy();
  };
  client.on('error', fail);
  endpoint.on('error', fail);
}

/** The endpoint that this client has the highest number with. */
function choose(client: string, from: readonly Target[]): Target | undefined {
  const weigh = ({ host, port }: Target): string =>
    createHash('sha1').update(`${client} ${host}:${port}`).digest('hex');
  return from.toSorted((a, b) => weigh(b).localeCompare(weigh(a)))[0];
}
