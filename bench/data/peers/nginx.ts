import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../../../examples/support/temp-folder.ts';
import { SERVER_ADDRESS } from '../network.ts';
import { SERVICE_PORTS } from '../ports.ts';
import { startProgram } from '../program.ts';
import { withChildren } from '../usage.ts';
import type { Peer, PeerKind } from './peer.ts';
import { redirectService } from './redirect.ts';

/** Where Debian's package libnginx-mod-stream puts it. */
const MODULE = '/usr/lib/nginx/modules/ngx_stream_module.so';

/** nginx as a proxy of streams and datagrams, one worker. */
export const NGINX: PeerKind = {
  word: 'nginx',
  title: 'nginx stream',
  udp: true,
  needs: { command: 'nginx', package: 'nginx' },
  async start(node): Promise<Peer> {
    if (!existsSync(MODULE)) throw new Error('not installed: package libnginx-mod-stream');
    const folder = tempFolder('bench-nginx');
    const config = join(folder.path, 'nginx.conf');
    writeFileSync(config, nginxConfig(folder.path, node.address));
    const program = startProgram(
      node.command('nginx', '-p', folder.path, '-c', config, '-e', 'stderr'),
    );
    redirectService(node);
    return {
      address: node.service,
      pids: () => withChildren(program.pid),
      check: () => program.check(),
      async close() {
        await program.kill();
        folder.remove();
      },
    };
  },
};

/** Listens on the service ports at this address; sessions of UDP are kept as long as ours by default. */
export function nginxConfig(folder: string, address: string): string {
  const servers = SERVICE_PORTS.map(({ protocol, port }) =>
    protocol === 'TCP'
      ? `  server { listen ${address}:${port} backlog=4096; proxy_pass ${SERVER_ADDRESS}:${port}; }\n`
      : `  server { listen ${address}:${port} udp; proxy_pass ${SERVER_ADDRESS}:${port}; proxy_timeout 30s; }\n`,
  );
  return `load_module ${MODULE};
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid ${folder}/pid;
error_log stderr error;
events { worker_connections 16000; }
stream {
  tcp_nodelay on;
${servers.join('')}}
`;
}
