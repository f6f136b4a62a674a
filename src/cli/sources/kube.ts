import { compileGlobs } from '../../kube/globs.ts';
import { DEFAULT_NODE_LABELS, type Selection, serviceSelector } from '../../kube/resource.ts';
import { defineGlobalSource } from '../command.ts';
import { backoffFrom } from '../flags/global.ts';
import { text, texts, trimmed } from '../flags/kinds.ts';
import { flag, group } from '../flags/table.ts';
import { userAgent } from '../version.ts';

/** A comma list of patterns; commas within braces belong to the pattern. May be repeated. */
const globs = texts('patterns', (given) => {
  const patterns = trimmed(splitPatterns(given));
  compileGlobs(patterns);
  return patterns;
});

export const kubeSource = defineGlobalSource({
  word: 'kube',
  summary: 'Services, EndpointSlices and Nodes, watched in a Kubernetes API',
  description: [
    'Uses the kubeconfig of --kubeconfig or KUBECONFIG, else the service account of the pod; not ' +
      '~/.kube/config. docs/reference/kubernetes.md lists the permissions that the account needs, and failures.',
    'While the API is unreachable, the last known state is served and the API is retried.',
  ],
  examples: {
    'kube --kubeconfig admin.conf to-local to-userspace':
      'proxies the services of a cluster on this node',
    'kube --server http://127.0.0.1:8001 to-json --node-name node-1':
      'prints the local view of node-1, through kubectl proxy',
  },
  flags: group('Source: kube', {
    kubeconfig: flag(text('path'), '', {
      help: 'Kubeconfig file with the server and the credentials; several are separated as in KUBECONFIG.',
      env: 'KUBECONFIG',
    }),
    server: flag(text('url'), '', {
      help: 'URL of the API server, in place of the one of the kubeconfig.',
      aliases: ['master'],
    }),
    'service-proxy-name': flag(text('name'), '', {
      help:
        'Serve the Services whose label service.kubernetes.io/service-proxy-name has this value. ' +
        'Without it: those that have no such label.',
    }),
    'with-service-labels': flag<readonly string[]>(globs, [], {
      help: 'Labels of Services to pass on: patterns for their keys, with * ? [a-z] and {x,y}.',
    }),
    'with-service-annotations': flag<readonly string[]>(globs, ['kpng-userspace.io/*'], {
      help: 'Annotations of Services to pass on, by the same patterns.',
    }),
    'with-node-labels': flag<readonly string[]>(globs, DEFAULT_NODE_LABELS, {
      help: 'Labels of Nodes to pass on, by the same patterns. Zones are always known.',
      defaultText: 'host name, zone and region',
    }),
    'with-node-annotations': flag<readonly string[]>(globs, [], {
      help: 'Annotations of Nodes to pass on, by the same patterns.',
    }),
  }),
  read(values) {
    const selection: Selection = {
      proxyName: values.serviceProxyName,
      serviceLabels: values.withServiceLabels,
      serviceAnnotations: values.withServiceAnnotations,
      nodeLabels: values.withNodeLabels,
      nodeAnnotations: values.withNodeAnnotations,
    };
    serviceSelector(selection.proxyName);
    return { kubeconfig: values.kubeconfig, server: values.server, selection };
  },
  async start({ kubeconfig, server, selection }, { globals, nodeName, setPodNetworks }) {
    const { KubeSource } = await import('../../kube/source.ts');
    return KubeSource.open({
      config: { kubeconfig, server, env: process.env },
      selection,
      nodeName,
      onPodNetworks: setPodNetworks,
      userAgent: userAgent(),
      backoff: backoffFrom(globals),
    });
  },
});

function splitPatterns(given: string): string[] {
  const patterns: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i < given.length; i += 1) {
    const char = given[i];
    if (char === '\\') i += 1;
    else if (char === '{') depth += 1;
    else if (char === '}') depth -= 1;
    else if (char === ',' && depth <= 0) {
      patterns.push(given.slice(start, i));
      start = i + 1;
    }
  }
  return [...patterns, given.slice(start)];
}
