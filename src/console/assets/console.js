// Everything works without this file. It adds copy buttons, pages that refresh by themselves, and counts of selected rows.

for (const button of document.querySelectorAll('button.copy')) {
  if (button instanceof HTMLButtonElement) offerCopy(button);
}

// Loading the answer to a form again would send the form again.
for (const element of document.querySelectorAll('main:not([data-answer]) [data-refresh]')) {
  if (element instanceof HTMLElement) refreshWhenChanged(element);
}

const counters = document.querySelectorAll('[data-live]');
if (counters.length > 0) keepLive(counters);

// In a narrow window the navigation scrolls: the entries of this page are seen first.
for (const current of document.querySelectorAll('.sections [aria-current]')) {
  current.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

for (const area of document.querySelectorAll('[data-drop]')) {
  const input = area.querySelector('input[type="file"]');
  if (area instanceof HTMLElement && input instanceof HTMLInputElement) acceptDrops(area, input);
}

for (const line of document.querySelectorAll('[data-selected]')) {
  if (line instanceof HTMLElement) countSelected(line);
}

/**
 * Keeps the number of selected rows right while boxes are checked. Hidden fields are the rows of other pages.
 *
 * @param {HTMLElement} line
 */
function countSelected(line) {
  const form = line.closest('form');
  const number = line.querySelector('strong');
  const field = `input[name="${line.dataset['selected']}"]`;
  form?.addEventListener('change', () => {
    const { length } = form.querySelectorAll(`${field}:checked, ${field}[type="hidden"]`);
    line.hidden = length === 0;
    if (number) number.textContent = String(length);
  });
}

/**
 * Files that are dropped on the area go to its file field.
 *
 * @param {HTMLElement} area
 * @param {HTMLInputElement} input
 */
function acceptDrops(area, input) {
  area.addEventListener('dragover', (event) => {
    event.preventDefault();
    area.classList.add('over');
  });
  for (const type of ['dragleave', 'drop']) area.addEventListener(type, () => area.classList.remove('over'));
  area.addEventListener('drop', (event) => {
    event.preventDefault();
    const files = event.dataTransfer?.files;
    if (files && files.length > 0) input.files = files;
  });
}

/** @param {HTMLButtonElement} button */
function offerCopy(button) {
  const label = button.firstChild;
  const text = label?.textContent ?? '';
  button.hidden = false;
  button.addEventListener('click', async () => {
    const copied = await copy(button.dataset['copy'] ?? '');
    if (label) label.textContent = copied ? 'Copied' : 'Select and copy';
    announce(copied ? 'Copied' : 'Not copied. Select the text and copy it.');
    setTimeout(() => {
      if (label) label.textContent = text;
    }, 2000);
  });
}

const status = document.createElement('p');
status.className = 'unseen';
status.setAttribute('role', 'status');
document.body.append(status);

/**
 * Tells screen readers.
 *
 * @param {string} text
 */
function announce(text) {
  status.textContent = text;
}

/**
 * Browsers offer the clipboard only over HTTPS and on loopback addresses, so other addresses need the older command.
 *
 * @param {string} text
 * @returns {Promise<boolean>}
 */
async function copy(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // The visitor has forbidden it.
    }
  }
  const area = document.createElement('textarea');
  area.value = text;
  area.className = 'unseen';
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  return copied;
}

/**
 * Loads the page again when its element, found by its attribute, is no longer the same on the server.
 *
 * @param {HTMLElement} element
 */
function refreshWhenChanged(element) {
  const interval = Math.max(1000, Number(element.dataset['refresh']));
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const response = await fetch(location.href, { headers: { accept: 'text/html' } }).catch(() => undefined);
    if (!response?.ok) return;
    const text = await response.text();
    const version = element.dataset['version'];
    const isNewer = version !== undefined && !text.includes(`data-version="${version}"`);
    if (response.redirected || isNewer || !text.includes('data-refresh=')) {
      if (isEdited()) return;
      clearInterval(timer);
      location.reload();
    }
  }, interval);
}

/**
 * Replaces the texts of counters by what the server counts now.
 *
 * @param {NodeListOf<Element>} elements
 */
function keepLive(elements) {
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const response = await fetch('/console/counters').catch(() => undefined);
    if (response?.redirected) clearInterval(timer);
    if (!response?.ok || response.redirected) return;
    const texts = await response.json();
    for (const element of elements) {
      const text = texts[element.getAttribute('data-live') ?? ''];
      if (typeof text === 'string' && text !== element.textContent) element.textContent = text;
    }
  }, 5000);
}

/** Whether a form has values that were not sent yet. A reload of the page would lose them. */
function isEdited() {
  return [...document.querySelectorAll('main :is(input, textarea, select)')].some((field) => {
    if (field instanceof HTMLTextAreaElement) return field.value !== field.defaultValue;
    if (field instanceof HTMLSelectElement) {
      const initial = [...field.options].findIndex((option) => option.defaultSelected);
      return field.selectedIndex !== Math.max(0, initial);
    }
    if (!(field instanceof HTMLInputElement)) return false;
    return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
  });
}
