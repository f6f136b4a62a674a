/** The interface that the network of Windows containers makes for the host; kube-proxy's choice. */
export const HNS_INTERFACE = 'vEthernet (HNS Internal NIC)';

/** The variable that kube-proxy's winuserspace read the name from. */
export const INTERFACE_VARIABLE = 'INTERFACE_TO_ADD_SERVICE_IP';

/** An interface of the host. */
export interface NamedInterface {
  readonly name: string;
  readonly loopback: boolean;
}

/** Which interface service addresses go to, and why. */
export interface ChosenInterface {
  readonly name: string;
  readonly reason: string;
}

/**
 * Chooses the interface for service addresses. Packets for an address are taken by Windows only on the
 * interface that has it, so an interface that pods lead to comes first, and the loopback interface,
 * which only programs of the host reach, last. `interfaces` are those that are up.
 */
export function chooseInterface(
  flag: string,
  env: Readonly<Record<string, string | undefined>>,
  interfaces: readonly NamedInterface[],
): ChosenInterface {
  if (flag !== '') return { name: flag, reason: '--portal-interface names it' };
  const named = env[INTERFACE_VARIABLE] ?? '';
  if (named !== '') return { name: named, reason: `${INTERFACE_VARIABLE} names it` };
  const names = interfaces.map(({ name }) => name).sort();
  if (names.includes(HNS_INTERFACE)) {
    return { name: HNS_INTERFACE, reason: 'it is the one of the host network service' };
  }
  const virtual = names.find((name) => name.startsWith('vEthernet ('));
  if (virtual !== undefined) {
    return {
      name: virtual,
      reason: `it is the first virtual interface of the host; there is no ${HNS_INTERFACE}`,
    };
  }
  const loopback = interfaces.find((each) => each.loopback);
  if (loopback !== undefined) {
    return {
      name: loopback.name,
      reason: 'there is no virtual interface; only programs of the host get there',
    };
  }
  return { name: HNS_INTERFACE, reason: 'it is the one that kube-proxy takes; no interface is up' };
}
