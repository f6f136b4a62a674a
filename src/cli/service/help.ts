import { flagSections, PROGRAM } from '../help.ts';
import { SERVICE_FLAGS } from './flags.ts';

/** What `service --help` prints. */
export function serviceHelp(): string {
  const parts = [
    [`${PROGRAM} service: run the program as a service of Windows.`],
    [
      'Usage:',
      `  ${PROGRAM} service install [flags] -- <command line of the service>`,
      `  ${PROGRAM} service start|stop|status|uninstall [flags]`,
    ],
    [
      'Windows starts programs as services only with something that speaks to its manager of services: NSSM',
      '(https://nssm.cc) or WinSW. install makes the service, or changes the one that there is; start and stop',
      'wait until it is so; everything may be done twice. status prints absent, stopped, running, pausing or',
      'changing, and ends with 0 when it runs and with 1 otherwise. Stopping lets connections drain.',
    ],
    [
      'Examples:',
      '  # makes a service of the controller, and one of the proxy that starts after it',
      `  ${PROGRAM} service install --name kpng -- kube --kubeconfig C:\\k\\config to-api`,
      `  ${PROGRAM} service install --name winuserspace --depends-on kpng -- local to-winuserspace -v=2`,
      '  # starts it, and with it what it depends on',
      `  ${PROGRAM} service start --name winuserspace`,
    ],
    ...flagSections(SERVICE_FLAGS),
  ];
  return `${parts.map((lines) => lines.join('\n')).join('\n\n')}\n`;
}
