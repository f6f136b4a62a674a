/**
 * Prints what a kpng server sends this node, all of it again at every change. For debugging, and as the
 * smallest program that makes something of the state of a node.
 *
 *     kpng file --input examples/state-file/harbour.yaml to-api &
 *     node examples/print-state/main.ts --node-name quay-1
 *
 * In a project of your own, import from 'kpng-userspace'.
 */
import { inspect } from 'node:util';
import { run } from '../../src/index.ts';

const RULER = '-'.repeat(72);

function show(value: object): string {
  return inspect(value, { depth: null, breakLength: 100, colors: process.stdout.isTTY });
}

await run((items, changed) => {
  const lines = [RULER, `# ${new Date().toISOString()}`];
  for (const { key, service, endpoints, endpointKeys } of items) {
    lines.push('', `${changed.has(key) ? '*' : ' '} ${key} ${show(service)}`);
    for (const [index, endpoint] of endpoints.entries()) {
      lines.push(`    ${endpointKeys[index]} ${show(endpoint)}`);
    }
  }
  process.stdout.write(`${lines.join('\n')}\n`);
});
