import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../../../examples/support/temp-folder.ts';
import { SERVER_ADDRESS } from '../network.ts';
import { SERVICE_PORTS } from '../ports.ts';
import { startProgram } from '../program.ts';
import type { Peer, PeerKind } from './peer.ts';
import { redirectService } from './redirect.ts';

/**
 * HAProxy in TCP mode, one thread, with splicing where it sees fit. It has no UDP. So many connections
 * are what it lets itself have with 20,000 descriptors.
 */
export const HAPROXY: PeerKind = {
  word: 'haproxy',
  title: 'HAProxy',
  udp: false,
  needs: { command: 'haproxy', package: 'haproxy' },
  async start(node): Promise<Peer> {
    const folder = tempFolder('bench-haproxy');
    const config = join(folder.path, 'haproxy.cfg');
    writeFileSync(config, haproxyConfig(node.address));
    const program = startProgram(node.command('haproxy', '-db', '-f', config));
    redirectService(node);
    return {
      address: node.service,
      pids: () => [program.pid],
      check: () => program.check(),
      async close() {
        await program.kill();
        folder.remove();
      },
    };
  },
};

/** Listens on the service ports at this address. */
export function haproxyConfig(address: string): string {
  const proxies = SERVICE_PORTS.filter(({ protocol }) => protocol === 'TCP').map(
    ({ name, port }) => `listen ${name}
  bind ${address}:${port} backlog 4096
  server server ${SERVER_ADDRESS}:${port}
`,
  );
  return `global
  nbthread 1
  maxconn 6000
defaults
  mode tcp
  option splice-auto
  timeout connect 5s
  timeout client 10m
  timeout server 10m
${proxies.join('')}`;
}
