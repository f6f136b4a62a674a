import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tempFolder } from '../../../examples/support/temp-folder.ts';
import { until } from '../../../examples/support/until.ts';
import { kubeconfigFor, kubeProxyFlags } from '../../peers/kube-proxy-flags.ts';
import { startProgram } from '../program.ts';
import type { KubeProxyApiAnswer, KubeProxyApiSettings } from './kube-proxy-api.ts';
import type { Peer, PeerKind } from './peer.ts';

const NODE_NAME = 'bench-node';
const API = join(import.meta.dirname, 'kube-proxy-api.ts');

/** The real kube-proxy in its userspace mode, with the rules that it writes itself. */
export function kubeProxy(path: string): PeerKind {
  return {
    word: 'kube-proxy',
    title: 'kube-proxy userspace',
    udp: true,
    needs: { command: 'iptables', package: 'iptables' },
    async start(node): Promise<Peer> {
      const folder = tempFolder('bench-kube-proxy');
      const kubeconfig = join(folder.path, 'kubeconfig');
      const settings: KubeProxyApiSettings = {
        nodeName: NODE_NAME,
        nodeAddress: node.address,
        service: node.service,
      };
      const api = startProgram(node.command(process.execPath, API, JSON.stringify(settings)));
      const url = await until('the API server is ready', () => {
        api.check();
        const [line, rest] = api.said().split('\n');
        return rest === undefined ? undefined : (JSON.parse(line ?? '') as KubeProxyApiAnswer).url;
      });
      writeFileSync(kubeconfig, kubeconfigFor(url));
      const flags = kubeProxyFlags({ kubeconfig, nodeName: NODE_NAME, verbosity: 0 });
      const program = startProgram(node.command(path, ...flags));
      return {
        address: node.service,
        pids: () => [program.pid],
        check: () => program.check(),
        async close() {
          await program.kill();
          await api.kill();
          folder.remove();
        },
      };
    },
  };
}
