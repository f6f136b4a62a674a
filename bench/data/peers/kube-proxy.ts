import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { KUBE_API, type KubeApiRequest } from '../../peers/kube-api.ts';
import { kubeconfigFor, kubeProxyFlags } from '../../peers/kube-proxy.ts';
import { startScript } from '../../support/dialogue.ts';
import { SERVER_ADDRESS } from '../network.ts';
import { SERVICE_PORTS } from '../ports.ts';
import { programPeer, type Peer, type PeerKind } from './peer.ts';

const NODE_NAME = 'bench-node';

/** The real kube-proxy in its userspace mode, with the rules that it writes itself. */
export function kubeProxy(path: string): PeerKind {
  return {
    word: 'kube-proxy',
    title: 'kube-proxy userspace',
    udp: true,
    needs: 'iptables',
    async start(node): Promise<Peer> {
      const api = startScript(KUBE_API, {}, node.command());
      const url = await api.ask<string>({
        do: 'start',
        nodeName: NODE_NAME,
        nodeAddress: node.address,
        services: [
          {
            key: 'bench/server',
            address: node.service,
            ports: SERVICE_PORTS,
            endpoints: [SERVER_ADDRESS],
          },
        ],
      } satisfies KubeApiRequest);
      const peer = await programPeer(node, (folder) => {
        const kubeconfig = join(folder, 'kubeconfig');
        writeFileSync(kubeconfig, kubeconfigFor(url));
        return [path, ...kubeProxyFlags({ kubeconfig, nodeName: NODE_NAME, verbosity: 0 })];
      });
      return {
        ...peer,
        async close() {
          await peer.close();
          await api.kill();
        },
      };
    },
  };
}
