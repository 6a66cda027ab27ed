import { observedBills } from '../../../api/server/observed-bills.ts';
import { fieldErrors, Form } from '../../framework/form.ts';
import { lines } from '../../framework/format.ts';
import { html } from '../../framework/html.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';

const path = '/console/exposed/bills';
const json = '/v1/account/observed-bills';

/** Whether images that jobs push get bills of materials, and the key that verifies them. */
export const observedBillsPage: Page = {
  path: '/exposed/bills',
  section: 'audit',
  action: 'admin',
  show: (call) => view(call, call.refused ?? new Form({})),
  send: async ({ api, form }): Promise<Redirect | RefusedForm> => {
    const enabled = form.get('enabled') === 'yes';
    try {
      await api.call('putObservedBills', observedBills, { body: { enabled } });
      return { to: path, done: enabled ? 'bills-on' : 'bills-off' };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error)) };
    }
  },
};

async function view({ api }: PageCall, form: Form): Promise<PageView> {
  const { enabled, public_key: key } = await api.call('getObservedBills', observedBills);
  const body = html`${form.error('form')}
    <p>
      Each image that a job of a CI pushes can get a bill of materials (CycloneDX) of what the job pulled from this
      server before. It is signed, and clients find it as a referrer of the image. It can list more than the image has
      inside, and lacks what the job had in its own cache.
    </p>
    <form method="post" class="panel narrow">
      <p class="state ${enabled ? 'good' : ''}">Images of this account get ${enabled ? 'bills' : 'no bills'}.</p>
      <p class="hint">
        Whoever may read an image may read its bill. The bill names private packages, and packages that other accounts
        share with this account.
      </p>
      ${
        enabled
          ? html`<button name="enabled" value="no">Make no more bills</button>`
          : html`<button class="primary" name="enabled" value="yes">Make bills from now on</button>`
      }
    </form>
    ${
      key !== null &&
      html`<h2>Key that verifies bills</h2>
        ${lines(key, 'the public key')}`
    }`;
  return form.view('Observed bills of materials', body, json);
}
