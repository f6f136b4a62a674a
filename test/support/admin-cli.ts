import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import type { Test } from 'tap';
import { runHere, startCli, type Cli, type Outcome } from './cli.ts';
import { shortDir } from './short-dir.ts';
import { freePort } from './sockets.ts';

/** A service of a state file: its name and the ports of its endpoints on 127.0.0.1. */
export interface FileService {
  readonly name: string;
  readonly endpoints: readonly number[];
}

/** A proxy as a process of its own, with an admin socket, and the commands that ask it. */
export interface AdminRig {
  readonly cli: Cli;
  readonly socket: string;
  /** Where services are reached, by name. */
  readonly ports: Readonly<Record<string, number>>;
  /** Runs a command with `--socket`. */
  run(...args: string[]): Promise<Outcome>;
  /** The same with `--output json`, and its answer. */
  ask<T>(...args: string[]): Promise<T>;
}

export async function adminRig(
  t: Test,
  services: readonly FileService[],
  args: readonly string[] = [],
): Promise<AdminRig> {
  const dir = shortDir(t);
  const socket = join(dir, 'run', 'a.sock');
  const ports: Record<string, number> = {};
  for (const { name } of services) ports[name] = await freePort();
  const path = join(dir, 'state.yaml');
  writeFileSync(path, stateText(services, ports));
  const cli = startCli(t, [
    'file',
    `--input=${path}`,
    'to-local',
    'to-userspace',
    '--portal=address',
    '--node-name=n1',
    '--metrics-bind-address=',
    '--healthz-bind-address=',
    `--admin-socket=${socket}`,
    ...args,
  ]);
  await cli.line('The first complete state is in place');
  const run = (...command: string[]): Promise<Outcome> => runHere(...command, '--socket', socket);
  return {
    cli,
    socket,
    ports,
    run,
    async ask<T>(...command: string[]): Promise<T> {
      const { stdout, stderr } = await run(...command, '--output=json');
      if (stdout === '') throw new Error(stderr);
      return JSON.parse(stdout) as T;
    },
  };
}

function stateText(services: readonly FileService[], ports: Record<string, number>): string {
  const items = services.map(({ name, endpoints }) => ({
    service: {
      name,
      ips: { clusterips: { v4: ['127.0.0.1'] } },
      ports: [{ name: 'tcp', protocol: 1, port: ports[name], targetport: endpoints[0] ?? 1 }],
    },
    endpoints: endpoints.map((port) => ({
      endpoint: {
        ips: { v4: ['127.0.0.1'] },
        portoverrides: [{ name: 'tcp', port }],
      },
      topology: { node: 'n1' },
    })),
  }));
  return JSON.stringify({ nodes: [{ name: 'n1' }], services: items });
}

/** A server that greets each client with a text and then echoes. Returns its port. */
export async function greeter(t: Test, text: string): Promise<number> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.write(text);
    socket.pipe(socket);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}
