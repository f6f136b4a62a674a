/** The two that have no process: no proxy, and the kernel's own translation of addresses. */
import { execFileSync } from 'node:child_process';
import { SERVER_ADDRESS, type DataNetwork, type PeerNode } from '../network.ts';
import type { Peer, PeerKind } from './peer.ts';

const nobody = { pids: () => [], check: () => undefined, close: async () => undefined };

/** Clients know the server. Its packets are forwarded by a node as those of the others are. */
export function direct(network: DataNetwork): PeerKind {
  return {
    word: 'direct',
    title: 'direct',
    udp: true,
    async start(node): Promise<Peer> {
      network.routeServerThrough(node);
      return { ...nobody, address: SERVER_ADDRESS };
    },
  };
}

/** One nftables rule; what a kernel-mode kube-proxy comes down to for a service with one endpoint. */
export const DNAT: PeerKind = {
  word: 'dnat',
  title: 'kernel DNAT',
  udp: true,
  needs: { command: 'nft', package: 'nftables' },
  async start(node): Promise<Peer> {
    const [file = '', ...args] = node.command('nft', '-f', '-');
    execFileSync(file, args, { input: rules(node) });
    return { ...nobody, address: node.service };
  },
};

function rules({ service }: PeerNode): string {
  return `table ip bench {
  chain prerouting {
    type nat hook prerouting priority -100;
    ip daddr ${service} dnat to ${SERVER_ADDRESS}
  }
}
`;
}
