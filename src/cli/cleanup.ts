/** Removes the packet rules and addresses that processes of this program left behind. */
import { KpngError } from '../errors.ts';
import { systemExec, type Exec } from '../portal/exec.ts';
import { removeInterfaceAddresses } from '../portal/interface/linux.ts';
import { cleanUpIptables } from '../portal/iptables/backend.ts';
import { cleanUpNftables } from '../portal/nftables/backend.ts';
import { removeTrial } from '../portal/nftables/trial.ts';
import { escapeLines } from '../util/terminal-text.ts';
import { PROGRAM, type Streams } from './command.ts';
import { readRoute, type CleanupTargets } from './flags/backend.ts';

/**
 * Removes the packet rules and addresses that a proxy left behind, and returns the exit code. Idempotent. A failure
 * does not stop the removal of the rest. A missing tool is mentioned, and is a failure only if every tool is missing.
 */
export async function cleanup(
  targets: CleanupTargets,
  { stdout, stderr }: Pick<Streams, 'stdout' | 'stderr'>,
  exec: Exec = systemExec,
  { platform, env }: Pick<NodeJS.Process, 'env' | 'platform'> = process,
): Promise<0 | 1> {
  const warn = (error: KpngError): void => {
    stderr.write(`${PROGRAM}: ${escapeLines(error.message)} (${error.code})\n`);
  };
  // Each removes one kind of state and resolves with a description of the result; rejects with a KpngError.
  const nftablesTable = async (): Promise<string> => {
    const table = targets.portalTable;
    const left = await cleanUpNftables(exec, table, readRoute(targets));
    await removeTrial(exec, table);
    if (left !== undefined) warn(left);
    return `There is no nftables table inet ${table} any more.`;
  };

  const iptablesChains = async (): Promise<string> => {
    const { portalChainPrefix: prefix, kubeProxyUserspace: kubeProxy } = targets;
    const { flowsStay, kubeProxyStays } = await cleanUpIptables(exec, { prefix, kubeProxy });
    if (flowsStay !== undefined) warn(flowsStay);
    const whose = kubeProxy ? 'of ours or of kube-proxy’s userspace mode' : 'of ours';
    const hint = 'Those that kube-proxy has left stay; --kube-proxy-userspace removes them, too.';
    return `There are no iptables chains ${prefix}-* ${whose} any more.${kubeProxyStays ? ` ${hint}` : ''}`;
  };

  const interfaceAddresses = async (): Promise<string> => {
    const name = targets.portalInterface;
    const cleaned = await removeInterfaceAddresses(exec, name === '' ? undefined : name);
    const where = name === '' ? 'any interface' : `the interface ${name}`;
    return cleaned.length === 0
      ? `There are no service addresses on ${where}.`
      : `There are no service addresses on ${cleaned.join(', ')} any more.`;
  };

  const windowsAddresses = async (): Promise<string> => {
    const { chooseInterface, windowsLink } = await import('../portal/windows/addresses.ts');
    const { name } = chooseInterface(targets.portalInterface, env);
    await windowsLink(name, env, exec).dispose();
    return `There are no service addresses of ours on the interface ${name} any more.`;
  };

  const portproxyRules = async (): Promise<string> => {
    const { RuleStore } = await import('../portal/windows/portproxy.ts');
    const { ledgerFor } = await import('../portal/windows/ledger.ts');
    await new RuleStore(exec, ledgerFor(env)).write([]);
    return 'There are no portproxy rules of ours any more.';
  };

  const steps =
    platform === 'win32'
      ? [portproxyRules, windowsAddresses]
      : [nftablesTable, iptablesChains, interfaceAddresses];
  let missing = 0;
  let failed = 0;
  for (const step of steps) {
    try {
      stdout.write(`${await step()}\n`);
    } catch (error) {
      if (!(error instanceof KpngError)) throw error;
      if (error.code === 'KPNG_PORTAL_TOOL_MISSING') missing += 1;
      else failed += 1;
      warn(error);
    }
  }
  return failed > 0 || missing === steps.length ? 1 : 0;
}
