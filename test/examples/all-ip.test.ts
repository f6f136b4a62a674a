/** The callout of examples/all-ip with a program in place of nft; test/system has the real one. */
import { spawnSync } from 'node:child_process';
import { chmodSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import t, { type Test } from 'tap';
import type { DeepPartial, Service } from '../../src/api/generated/localv1/api.ts';
import { stateJson } from '../../src/sinks/json.ts';
import { endpoint, entry, TestView } from '../support/messages.ts';

if (process.platform === 'win32') t.plan(0, 'nft is a program of Linux');

const FOLDER = join(import.meta.dirname, '..', '..', 'examples', 'all-ip');
const CLEAR = 'add table inet kpng-all-ip\ndelete table inet kpng-all-ip\n';

/** Runs the callout; `script` is what nft got. */
function callout(t: Test, input: string, nft = 'cat >"$0.got"') {
  const folder = t.testdir({ nft: `#!/bin/sh\n${nft}\n`, 'nft.got': '' });
  chmodSync(join(folder, 'nft'), 0o755);
  const PATH = `${folder}:${dirname(process.execPath)}:/usr/bin:/bin`;
  const outcome = spawnSync(join(FOLDER, 'callout.ts'), { input, env: { PATH }, encoding: 'utf8' });
  return { ...outcome, script: readFileSync(join(folder, 'nft.got'), 'utf8') };
}

function state(...services: [key: string, ips: DeepPartial<Service>['ips'], ...ends: string[]][]) {
  const view = new TestView();
  for (const [key, ips, ...ends] of services) {
    const endpoints = ends.map((text) => {
      const [ip = '', where] = text.split(' ');
      const ips = ip.includes(':') ? { v4: [], v6: [ip] } : { v4: [ip] };
      return [text, endpoint('', { ips, local: where === 'here' })] as const;
    });
    view.set(entry(key, { ...(ips && { ips }) }, Object.fromEntries(endpoints)));
  }
  return [...stateJson(view)].join('');
}

t.test('each external IP goes to the first endpoint on the node, in one table', async (t) => {
  const externalIPs = { v4: ['192.0.2.1', '192.0.2.9'] };
  const input = state(
    ['d/a', { externalIPs }, '10.1.0.1 away', '10.1.0.2 here', '10.1.0.3 here'],
    ['d/b', { externalIPs: { v4: ['192.0.2.2'] } }, '10.1.0.4 here'],
    ['d/c', { externalIPs: { v6: ['2001:db8::1'] } }, 'fd00::1 here'],
    ['d/elsewhere', { externalIPs: { v4: ['192.0.2.3'] } }, '10.1.0.5 away'],
    ['d/inner', { clusterIPs: { v4: ['10.96.0.1'] } }, '10.1.0.6 here'],
  );
  const { status, script, stdout, stderr } = callout(t, input);
  t.equal(stderr, '');
  t.equal(status, 0);
  t.ok(script.startsWith(`${CLEAR}table inet kpng-all-ip {\n`));
  t.match(script, 'elements = { 192.0.2.1 : 10.1.0.2, 192.0.2.2 : 10.1.0.4 }');
  t.match(script, 'elements = { 2001:db8::1 : fd00::1 }');
  t.match(script, /dnat ip to ip daddr map @V4[^]*dnat ip to ip daddr map @V4/, 'in and out');
  t.match(stdout, /^map V4 .*\nmap V6 .*\n$/);
});

t.test('only addresses get into the script', async (t) => {
  const externalIPs = { v4: ['192.0.2.1 : 1.1.1.1, 192.0.2.9'] };
  const evil = state(['d/a', { externalIPs }, '10.1.0.1 here']);
  t.equal(callout(t, evil).script, CLEAR);
});

t.test('passes on nft’s output and its failure', async (t) => {
  const { status, stderr } = callout(t, '', 'echo "no such table" >&2; exit 1');
  t.not(status, 0);
  t.match(stderr, /^no such table\n/);
});
