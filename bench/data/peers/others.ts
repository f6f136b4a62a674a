/** HAProxy and nginx, and the two ways that have no process: no proxy, and the kernel's own translation of addresses. */
import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SERVER_ADDRESS, type DataNetwork, type PeerNode } from '../network.ts';
import { SERVICE_PORTS } from '../ports.ts';
import { withChildren } from '../../support/process-usage.ts';
import { programPeer, type Peer, type PeerKind } from './peer.ts';

const noProcess = { pids: () => [], check: () => undefined, close: async () => undefined };

/** Clients know the server. Its packets are forwarded by a node as those of the others are. */
export function direct(network: DataNetwork): PeerKind {
  return {
    word: 'direct',
    title: 'direct',
    udp: true,
    async start(node): Promise<Peer> {
      network.routeServerThrough(node);
      return { ...noProcess, address: SERVER_ADDRESS };
    },
  };
}

/** One nftables rule; what a kernel-mode kube-proxy comes down to for a service with one endpoint. */
export const DNAT: PeerKind = {
  word: 'dnat',
  title: 'kernel DNAT',
  udp: true,
  needs: 'nft',
  async start(node): Promise<Peer> {
    writeRule(node, `dnat to ${SERVER_ADDRESS}`);
    return { ...noProcess, address: node.service };
  },
};

/**
 * What happens to packets for the service address. For proxies that do not write rules themselves, they are redirected
 * to the same port of the node: to serve an address that no interface has is a part of the work, and tracking
 * its connections costs something.
 */
function writeRule(node: PeerNode, action: string): void {
  const [file = '', ...args] = node.command('nft', '-f', '-');
  const rules = `table ip bench {
  chain prerouting {
    type nat hook prerouting priority -100;
    ip daddr ${node.service} ${action}
  }
}
`;
  execFileSync(file, args, { input: rules });
}
const REDIRECT = 'meta l4proto { tcp, udp } redirect';

/**
 * HAProxy in TCP mode, one thread, with splicing where it sees fit. It has no UDP. So many connections
 * are what it lets itself have with 20,000 descriptors.
 */
export const HAPROXY: PeerKind = {
  word: 'haproxy',
  title: 'HAProxy',
  udp: false,
  needs: 'haproxy',
  async start(node) {
    writeRule(node, REDIRECT);
    return programPeer(node, (folder) => {
      const config = join(folder, 'haproxy.cfg');
      writeFileSync(config, haproxyConfig(node.address));
      return ['haproxy', '-db', '-f', config];
    });
  },
};

/** Listens on the service ports at this address. */
function haproxyConfig(address: string): string {
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

/** Where Debian's package libnginx-mod-stream puts it. */
const MODULE = '/usr/lib/nginx/modules/ngx_stream_module.so';

/** nginx as a proxy of streams and datagrams, one worker. */
export const NGINX: PeerKind = {
  word: 'nginx',
  title: 'nginx stream',
  udp: true,
  needs: 'nginx',
  async start(node) {
    if (!existsSync(MODULE)) throw new Error('not installed: package libnginx-mod-stream');
    writeRule(node, REDIRECT);
    return programPeer(
      node,
      (folder) => {
        const config = join(folder, 'nginx.conf');
        writeFileSync(config, nginxConfig(folder, node.address));
        return ['nginx', '-p', folder, '-c', config, '-e', 'stderr'];
      },
      withChildren,
    );
  },
};

/** Listens on the service ports at this address; sessions of UDP are kept as long as ours by default. */
function nginxConfig(folder: string, address: string): string {
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
