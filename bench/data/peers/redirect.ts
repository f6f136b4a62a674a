import { execFileSync } from 'node:child_process';
import type { PeerNode } from '../network.ts';

/**
 * Redirects the service address to the same port of the node, by one nftables rule. For proxies that do not
 * write rules themselves: to serve an address that no interface has is a part of the work, and tracking
 * its connections costs something.
 */
export function redirectService(node: PeerNode): void {
  const [file = '', ...args] = node.command('nft', '-f', '-');
  const rules = `table ip bench {
  chain prerouting {
    type nat hook prerouting priority -100;
    ip daddr ${node.service} meta l4proto { tcp, udp } redirect
  }
}
`;
  execFileSync(file, args, { input: rules });
}
