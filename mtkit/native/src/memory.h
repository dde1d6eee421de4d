// Memory for arrays of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace mtkit {

// A large page of memory: reading a large matrix is faster with few, large pages.
constexpr size_t LARGE = size_t{1} << 21;

#ifdef __linux__
// Large memory comes from the system, and goes back to it at once. `malloc` would keep what the
// largest batch of each thread needed for as long as the program lives.
inline void* take_large(size_t bytes) {
    void* const mapped = mmap(nullptr, bytes + LARGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    // It begins at a large page; what is before and after it goes back.
    char* const first = static_cast<char*>(mapped);
    const size_t before = -reinterpret_cast<uintptr_t>(first) % LARGE;
    if (before > 0) munmap(first, before);
    munmap(first + before + bytes, LARGE - before);
    madvise(first + before, bytes, MADV_HUGEPAGE);
    return first + before;
}
inline void give_large(void* data, size_t bytes) { munmap(data, bytes); }
#else
inline void* take_large(size_t bytes) { return std::aligned_alloc(LARGE, bytes); }
inline void give_large(void* data, size_t) { std::free(data); }
#endif

// An array that begins at a cache line. It can be moved, not copied; one that was moved is not used
// again.
template <class T>
class Array {
public:
    // Numbers that are not set; what was in it is lost.
    void allocate(size_t size) {
        data_.reset();
        size_ = 0;
        if (size == 0) return;
        if (size > (SIZE_MAX - LARGE) / sizeof(T)) throw std::bad_alloc();
        const size_t unit = size * sizeof(T) < LARGE ? 64 : LARGE;
        const size_t bytes = (size * sizeof(T) + unit - 1) / unit * unit;
        void* const data = unit == LARGE ? take_large(bytes) : std::aligned_alloc(unit, bytes);
        if (data == nullptr) throw std::bad_alloc();
        data_ = {static_cast<T*>(data), Free{bytes}};
        size_ = size;
    }
    // New zeros.
    void resize(size_t size) {
        allocate(size);
        if (size > 0) std::memset(data(), 0, size * sizeof(T));
    }
    // Room for at least `size` numbers, for a buffer that is used again: zeros, or what was there.
    T* room(size_t size) {
        if (size > size_) resize(size + size / 4);
        return data();
    }

    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

private:
    struct Free {
        size_t bytes = 0;
        void operator()(T* data) const {
            if (bytes < LARGE) {
                std::free(data);
            } else {
                give_large(data, bytes);
            }
        }
    };
    std::unique_ptr<T[], Free> data_;
    size_t size_ = 0;
};

}  // namespace mtkit
