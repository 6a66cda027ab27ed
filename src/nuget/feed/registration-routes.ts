import type { Router } from 'express';
import { keyOfVersion } from '../hosted/packages.ts';
import { hives, type Hive } from './addresses.ts';
import { idOf, noFile, noPackage, type Answering, type FeedCall } from './call.ts';
import { sendDocument, type SendPackageDocument } from './documents.ts';
import { registrationIndex, registrationLeaf, registrationPage } from './registration.ts';

/** The registration hives. https://learn.microsoft.com/nuget/api/registration-base-url-resource */
export function addRegistrations(router: Router, answering: Answering, sendPackageDocument: SendPackageDocument): void {
  for (const hive of Object.keys(hives) as Hive[]) {
    const { semVer2 } = hives[hive];
    const sendIndex = (call: FeedCall) =>
      sendPackageDocument(call, hive, async (id, claimed) => {
        const pages = await call.source.pages(call.accountId, id, semVer2, claimed);
        return pages && { served: pages.served, value: registrationIndex(call.addresses, hive, id, pages.value) };
      });
    router.get(`/${hive}/:id/index.json`, answering('read', sendIndex, 'version-check'));
    router.get(
      `/${hive}/:id/page/:lower/:upper.json`,
      answering('read', (call) => sendPage(hive, call), 'version-check'),
    );
    router.get(
      `/${hive}/:id/:version.json`,
      answering('read', (call) => sendLeaf(hive, call), 'version-check'),
    );
  }
}

async function sendPage(hive: Hive, call: FeedCall): Promise<void> {
  const { accountId, addresses, source, path } = call;
  const id = idOf(path);
  const lower = keyOfVersion(path['lower']!);
  const upper = keyOfVersion(path['upper']!);
  const bounds = lower !== undefined && upper !== undefined ? { lower, upper } : undefined;
  const { semVer2 } = hives[hive];
  const versions = bounds && (await source.versions(accountId, id, semVer2, bounds.lower, bounds.upper));
  if (!versions) throw noPackage(path);
  await sendDocument(call, hive, versions.served, registrationPage(addresses, hive, id, bounds, versions.value));
}

async function sendLeaf(hive: Hive, call: FeedCall): Promise<void> {
  const { accountId, addresses, source, path } = call;
  const id = idOf(path);
  const key = keyOfVersion(path['version']!);
  const { semVer2 } = hives[hive];
  const found = key === undefined ? undefined : await source.versions(accountId, id, semVer2, key, key);
  // Two different versions can be equal in order, for example 1.0.0-0 and 1.0.0--0.
  const version = found?.value.find((each) => keyOfVersion(each.version) === key);
  if (!found || !version) throw noFile(path);
  await sendDocument(call, hive, found.served, registrationLeaf(addresses, hive, id, version));
}
