import { fieldName } from '../config/field.ts';
import { KUBE_PROXY_FIELDS, type FieldRules } from '../config/kube-proxy-fields.ts';
import { KUBE_PROXY_API_VERSION, KUBE_PROXY_KIND } from '../config/kube-proxy.ts';
import { OWN_API_VERSION, OWN_KIND } from '../config/own-kind.ts';
import { configurableFlags, type ConfigurableFlag } from './flags/fields.ts';
import { defaultText, variableOf } from './flags/table.ts';
import type { Registry } from './registry.ts';

/**
 * The page docs/configuration.md, made from the table of flags. A test compares it with the file, and
 * writes the file when it is run with UPDATE_DOCS=1.
 */
export function configPage(registry: Registry): string {
  const flags = configurableFlags(registry);
  return [
    '# Configuration',
    '',
    '<!-- Made by src/cli/config-page.ts. To write it anew: UPDATE_DOCS=1 npx tap test/cli/config-docs.test.ts -->',
    '',
    'Every setting is a flag ([cli.md](cli.md)). What the command line does not say may come from the environment, and what',
    'neither says from a file:',
    '',
    '1. flags: `--metrics-bind-address 0.0.0.0:10249`;',
    '2. environment variables, `KPNG_` and the name of the flag: `KPNG_METRICS_BIND_ADDRESS=0.0.0.0:10249`;',
    '3. the file of `--config FILE` (or `KPNG_CONFIG`): `metricsBindAddress: 0.0.0.0:10249`;',
    '4. defaults.',
    '',
    'This differs from kube-proxy, which ignores most flags when it has a file.',
    '',
    '## The file',
    '',
    `YAML with one or two documents: a \`${KUBE_PROXY_KIND}\` as kube-proxy takes it, and one of our own kind for`,
    'everything else. Where both set the same, our own counts. A value of `null` sets nothing. A field that does not exist is an',
    'error, which says what was probably meant; one of kube-proxy that has no meaning here is a warning.',
    '',
    '```yaml',
    `apiVersion: ${KUBE_PROXY_API_VERSION}`,
    `kind: ${KUBE_PROXY_KIND}`,
    'clientConnection:',
    '  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf',
    'hostnameOverride: node-1',
    'nodePortAddresses: [10.0.0.0/8]',
    '---',
    `apiVersion: ${OWN_API_VERSION}`,
    `kind: ${OWN_KIND}`,
    'command: kube to-local to-userspace',
    'maxConnections: 20000',
    'connectTimeouts: [250ms, 1s]',
    '```',
    '',
    '`command` holds the words that the command line may leave out then: `kpng-userspace --config config.yaml`. A file of',
    'kube-proxy alone stands for `kube to-local to-userspace`.',
    '',
    'Editors complete and check the file with `schema/configuration.schema.json`.',
    '',
    '`config validate` tells every error of a file, and what of it has no effect; with an error the exit code is 2.',
    '',
    '```console',
    '$ kpng-userspace config validate config.yaml',
    'config.yaml is valid.',
    '$ sed s/maxConnections/maxConections/ config.yaml > misspelt.yaml',
    '$ kpng-userspace config validate misspelt.yaml',
    'kpng-userspace: misspelt.yaml:11:1: maxConections: unknown field; did you mean maxConnections? (KPNG_CONFIG_INVALID)',
    '```',
    '',
    '`config print` tells what everything is set to and where that comes from, as a table, as `json` or as a file that sets the',
    'same (`--output yaml`). The words for source and sink may be left out where the file has a `command`.',
    '',
    '```console',
    "$ KPNG_DRAIN_TIMEOUT=20s kpng-userspace config print --config config.yaml --max-connections 30000 | grep -v ' default$'",
    'SETTING                      VALUE                                                                             FROM',
    '--drain-timeout              20s                                                                               environment KPNG_DRAIN_TIMEOUT',
    '--kubeconfig                 /var/lib/kube-proxy/kubeconfig.conf                                               config.yaml:4 (clientConnection.kubeconfig)',
    '--node-name                  node-1                                                                            config.yaml:5 (hostnameOverride)',
    '--nodeport-addresses         10.0.0.0/8                                                                        config.yaml:6 (nodePortAddresses)',
    '--connect-timeouts           250ms,1s                                                                          config.yaml:12 (connectTimeouts)',
    '--max-connections            30000                                                                             flag',
    '```',
    '',
    'A running program tells what it is set to at `/configz`, beside its metrics ([metrics.md](metrics.md)).',
    '',
    '## Changing it while the program runs',
    '',
    'The file is read again when it changes, by whatever means (a ConfigMap that is mounted, too), and at HUP. Settings that are',
    'live take effect at once. A change of another one is refused with a line that names the field (`KPNG_CONFIG_NOT_LIVE`), and',
    'counted in `kpng_userspace_config_pending_settings`: what it had at the start stays in force until the next. A file with an',
    'error changes nothing.',
    '',
    'Live are:',
    '',
    ...flags
      .filter(({ spec }) => spec.live === true)
      .map(({ flag }) => `- \`${fieldName(flag)}\` (\`--${flag}\`)`),
    '',
    'Limits and times count for what begins from then on: a connection that is being made keeps its attempts. One that is half closed',
    'keeps its time with the `node` engine, and takes the new one with its next byte with `linux`. UDP sessions take a new idle limit',
    'with their next datagram, and `endpointGracePeriod` counts for endpoints that go from then on. A client that is held',
    'keeps its time; where `holdTimeout` is set to 0 or no longer is, packet rules change, too.',
    '',
    'A lower `maxConnections` cuts nobody off: connections stay, and new ones are refused until fewer are left. With a lower',
    '`maxUdpSessions`, the next new client ends the least recently used sessions down to it, and gets one of its own.',
    '',
    `## ${OWN_KIND}`,
    '',
    `\`apiVersion: ${OWN_API_VERSION}\`. What the fields mean is in [cli.md](cli.md).`,
    '',
    '| field | environment | value | default | of |',
    '| --- | --- | --- | --- | --- |',
    ...flags.map(fieldRow),
    '',
    `## ${KUBE_PROXY_KIND}`,
    '',
    `\`apiVersion: ${KUBE_PROXY_API_VERSION}\`. Values that ask for nothing, such as \`""\`, \`0s\` and \`null\`, get no warning.`,
    '',
    '| field | here |',
    '| --- | --- |',
    ...ruleRows(KUBE_PROXY_FIELDS, ''),
    '',
  ].join('\n');
}

function fieldRow({ flag, spec, commands }: ConfigurableFlag): string {
  const variables = [variableOf(flag), spec.env].filter((name) => name !== undefined);
  const value = spec.kind.placeholder.replaceAll('|', '\\|');
  const of = commands.length === 0 ? 'all' : commands.join(', ');
  const environment = variables.map((name) => `\`${name}\``).join(', ');
  return `| \`${fieldName(flag)}\` | ${environment} | ${value} | ${defaultText(spec) ?? ''} | ${of} |`;
}

function ruleRows(rules: FieldRules, prefix: string): string[] {
  return Object.entries(rules).flatMap(([name, rule]) => {
    const path = `${prefix}${name}`;
    if (rule.kind === 'object') return ruleRows(rule.fields, `${path}.`);
    if (rule.kind === 'flag') return [`| \`${path}\` | \`--${rule.flag}\` |`];
    const effect = rule.kind === 'only' ? `Only says what is so: ${rule.why}.` : 'No effect: ';
    return [`| \`${path}\` | ${effect}${rule.kind === 'ignored' ? `${rule.why}.` : ''} |`];
  });
}
